//! A cluster's own authority: its certificates tell who belongs to the cluster, and who may read.
//!
//! It has two roots. One proves members, and etcd and Dask trust no other. The other proves users:
//! node servers alone know it, so a user's certificate opens neither etcd nor a scheduler.
//!
//! The files are PEM, as etcd, Dask, curl and OpenSSL read them: `ca.pem` and `ca.key` of members,
//! `users.pem` and `users.key` of users, `NAME.pem` and `NAME.key` of whoever has a certificate. A
//! key is readable by its owner alone, and is refused when it is not. A member's certificate is for
//! servers and for clients, as etcd demands of its peers; a user's is for clients only.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::net::IpAddr;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use time::{Duration, OffsetDateTime};

use crate::error::{Error, Result};
use crate::identity::{self, Identity, checked};

const YEARS: i64 = 10;
/// Clocks of a cluster's nodes may be so far apart.
const SKEW: Duration = Duration::hours(25);

/// What issues the certificates of one cluster.
pub struct Authority {
    cluster: String,
    members: Root,
    users: Root,
}

/// A certificate that proves others, and what issues these.
struct Root {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

/// Whom a root proves.
#[derive(Clone, Copy)]
enum Proves {
    Members,
    Users,
}

impl Proves {
    /// The name of the root's files.
    fn file(self) -> &'static str {
        match self {
            Proves::Members => "ca",
            Proves::Users => "users",
        }
    }

    /// The name that the root has in its certificate: no two of a cluster have one.
    fn subject(self, cluster: &str) -> String {
        match self {
            Proves::Members => format!("engram {cluster}"),
            Proves::Users => format!("engram {cluster} users"),
        }
    }
}

impl Root {
    fn new(cluster: &str, proves: Proves) -> Result<Root> {
        let params = own(cluster, proves)?;
        let key = KeyPair::generate().map_err(|e| unmade(&e))?;
        let certificate = params.self_signed(&key).map_err(|e| unmade(&e))?.pem();
        Ok(Root { certificate, issuer: Issuer::new(params, key) })
    }

    fn read(folder: &Path, proves: Proves) -> Result<(Root, String)> {
        let certificate = read(&folder.join(format!("{}.pem", proves.file())))?;
        let key = folder.join(format!("{}.key", proves.file()));
        let pair = KeyPair::from_pem(&read_key(&key)?).map_err(|e| unusable(&key, &e))?;
        let cluster = cluster_of(&certificate)?;
        // The issuer's name follows from the cluster's: no certificate need be taken apart for it.
        let issuer = Issuer::new(own(&cluster, proves)?, pair);
        Ok((Root { certificate, issuer }, cluster))
    }

    fn write(&self, folder: &Path, proves: Proves) -> Result<()> {
        let at = |suffix: &str| folder.join(format!("{}.{suffix}", proves.file()));
        write(&at("key"), &self.issuer.key().serialize_pem(), 0o600, false)?;
        write(&at("pem"), &self.certificate, 0o644, false)
    }
}

/// A certificate, its key, and the authority that has issued it: all as PEM.
#[derive(Clone)]
pub struct Credentials {
    /// The certificate that members are proven by.
    pub authority: String,
    /// The certificate that users are proven by, where these are served.
    pub users: Option<String>,
    /// The certificate.
    pub certificate: String,
    /// The key of the certificate: a secret.
    pub key: String,
}

impl Authority {
    /// A new authority for a cluster.
    pub fn new(cluster: &str) -> Result<Authority> {
        let cluster = checked("cluster", cluster)?;
        let root = |proves| Root::new(&cluster, proves);
        let (members, users) = (root(Proves::Members)?, root(Proves::Users)?);
        Ok(Authority { cluster, members, users })
    }

    /// Reads the two roots and their keys of a folder.
    pub fn read(folder: &Path) -> Result<Authority> {
        let (members, cluster) = Root::read(folder, Proves::Members)?;
        let (users, other) = Root::read(folder, Proves::Users)?;
        if other != cluster {
            return Err(Error::Tls(format!(
                "{}: ca.pem is of cluster {cluster:?}, and users.pem of {other:?}",
                folder.display()
            )));
        }
        Ok(Authority { cluster, members, users })
    }

    /// Writes the two roots and their keys into a folder, where none of these may be yet.
    ///
    /// On an error there is no whole authority: remove what was written, and write again.
    pub fn write(&self, folder: &Path) -> Result<()> {
        // That of members is the last: where it is, the other is, too.
        self.users.write(folder, Proves::Users)?;
        self.members.write(folder, Proves::Members)
    }

    /// The cluster.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// The certificate that members are proven by, as PEM.
    pub fn certificate(&self) -> &str {
        &self.members.certificate
    }

    /// Issues a certificate for a node, which others reach by these addresses or host names.
    pub fn member(&self, node: &str, hosts: &[&str]) -> Result<Credentials> {
        let usages = [ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let whom = Identity::member(&self.cluster, node)?;
        let own = self.issue(&self.members, &whom, hosts, node, &usages)?;
        Ok(Credentials { users: Some(self.users.certificate.clone()), ..own })
    }

    /// Issues a certificate for a user, whom a server knows by it.
    pub fn user(&self, uid: u32) -> Result<Credentials> {
        let usages = [ExtendedKeyUsagePurpose::ClientAuth];
        let whom = Identity::user(&self.cluster, uid)?;
        self.issue(&self.users, &whom, &[], &format!("uid {uid}"), &usages)
    }

    fn issue(
        &self,
        root: &Root,
        whom: &Identity,
        hosts: &[&str],
        name: &str,
        usages: &[ExtendedKeyUsagePurpose],
    ) -> Result<Credentials> {
        let mut params = dated(name);
        params.subject_alt_names.push(uri(&whom.to_string())?);
        for host in hosts {
            params.subject_alt_names.push(match host.parse::<IpAddr>() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) => SanType::DnsName((*host).try_into().map_err(|_| {
                    Error::Argument(format!("{host:?} is no address and no host name"))
                })?),
            });
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = usages.to_vec();
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().map_err(|e| unmade(&e))?;
        let certificate = params.signed_by(&key, &root.issuer).map_err(|e| unmade(&e))?.pem();
        let authority = self.members.certificate.clone();
        Ok(Credentials { authority, users: None, certificate, key: key.serialize_pem() })
    }
}

impl Credentials {
    /// Writes `NAME.pem` and `NAME.key` into a folder, in place of those that are there, and the
    /// roots if they are not.
    pub fn write(&self, folder: &Path, name: &str) -> Result<()> {
        let name = checked("file", name)?;
        if ["ca", "users"].contains(&name.as_str()) {
            return Err(Error::Argument(format!("{name:?} is a root's name: take another")));
        }
        write(&folder.join(format!("{name}.key")), &self.key, 0o600, true)?;
        write(&folder.join(format!("{name}.pem")), &self.certificate, 0o644, true)?;
        keep_root(&folder.join("ca.pem"), &self.authority)?;
        self.users.iter().try_for_each(|users| keep_root(&folder.join("users.pem"), users))
    }

    /// Reads `NAME.pem`, `NAME.key`, `ca.pem` and, where it is there, `users.pem` of a folder.
    pub fn read(folder: &Path, name: &str) -> Result<Credentials> {
        let at = |suffix: &str| folder.join(format!("{name}.{suffix}"));
        let users = folder.join("users.pem");
        Ok(Credentials {
            authority: read(&folder.join("ca.pem"))?,
            users: if users.exists() { Some(read(&users)?) } else { None },
            certificate: read(&at("pem"))?,
            key: read_key(&at("key"))?,
        })
    }
}

/// Writes a root's certificate, unless it is there.
fn keep_root(path: &Path, certificate: &str) -> Result<()> {
    if !path.exists() {
        return write(path, certificate, 0o644, true);
    }
    if read(path)? == certificate {
        return Ok(());
    }
    Err(Error::Argument(format!(
        "{} is another authority's: take another folder for this cluster",
        path.display()
    )))
}

/// What a root of a cluster says of itself.
fn own(cluster: &str, proves: Proves) -> Result<CertificateParams> {
    let mut params = dated(&proves.subject(cluster));
    params.subject_alt_names.push(uri(&identity::of_authority(cluster))?);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

fn dated(name: &str) -> CertificateParams {
    let now = OffsetDateTime::now_utc();
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = now - SKEW;
    params.not_after = now + Duration::days(365 * YEARS);
    params
}

fn uri(text: &str) -> Result<SanType> {
    let text = text.try_into().map_err(|_| Error::Argument(format!("{text:?} is no URI")))?;
    Ok(SanType::URI(text))
}

/// The cluster that an authority's certificate names.
pub(crate) fn cluster_of(certificate: &str) -> Result<String> {
    let der = CertificateDer::from_pem_slice(certificate.as_bytes())
        .map_err(|e| Error::Tls(format!("the authority's certificate is no PEM: {e:?}")))?;
    let parsed = webpki::EndEntityCert::try_from(&der)
        .map_err(|e| Error::Tls(format!("the authority's certificate cannot be read: {e}")))?;
    let mut names = parsed.valid_uri_names().filter_map(identity::cluster_of);
    names.next().ok_or_else(|| {
        Error::Tls("the authority's certificate names no cluster: make one with Authority".into())
    })
}

fn unmade(error: &rcgen::Error) -> Error {
    Error::Tls(format!("a certificate could not be made: {error}"))
}

fn unusable(path: &Path, error: &rcgen::Error) -> Error {
    Error::Tls(format!("{} cannot be used as a key: {error}", path.display()))
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(|e| Error::os(format!("reading {}", path.display()), &e))
}

/// A key is believed to be a secret only where nobody else can read it.
fn read_key(path: &Path) -> Result<String> {
    let text = read(path)?;
    let mode = fs::metadata(path)
        .map_err(|e| Error::os(format!("looking at {}", path.display()), &e))?
        .permissions()
        .mode();
    if mode & 0o077 != 0 {
        return Err(Error::Tls(format!(
            "{} can be read by others (mode {:o}): chmod 600, and issue it anew if they did",
            path.display(),
            mode & 0o777
        )));
    }
    Ok(text)
}

/// Writes a file under another name, and gives it its own when it is whole.
fn write(path: &Path, text: &str, mode: u32, replace: bool) -> Result<()> {
    let part = PathBuf::from(format!("{}.{}", path.display(), std::process::id()));
    let failed = |e: std::io::Error| Error::os(format!("writing {}", path.display()), &e);
    let _ = fs::remove_file(&part);
    let named = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&part)
        .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
        // A link, unlike a renaming, replaces nothing.
        .and_then(|()| if replace { fs::rename(&part, path) } else { fs::hard_link(&part, path) });
    let _ = fs::remove_file(&part);
    named.map_err(failed)
}
