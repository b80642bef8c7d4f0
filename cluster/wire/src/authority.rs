//! A cluster's own authority: who it has issued a certificate to, belongs to the cluster.
//!
//! The files are PEM, as etcd, Dask, curl and OpenSSL read them: `ca.pem` and `ca.key` of the
//! authority, `NAME.pem` and `NAME.key` of whom it has issued to. A key is readable by its owner
//! alone, and is refused when it is not. A member's certificate is for servers and for clients, as
//! etcd demands of its peers; a user's is for clients only.

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
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate, its key, and the authority that has issued it: all as PEM.
#[derive(Clone)]
pub struct Credentials {
    /// The authority's certificate.
    pub authority: String,
    /// The certificate.
    pub certificate: String,
    /// The key of the certificate: a secret.
    pub key: String,
}

impl Authority {
    /// A new authority for a cluster.
    pub fn new(cluster: &str) -> Result<Authority> {
        let params = own(&checked("cluster", cluster)?)?;
        let key = KeyPair::generate().map_err(|e| unmade(&e))?;
        let certificate = params.self_signed(&key).map_err(|e| unmade(&e))?.pem();
        let issuer = Issuer::new(params, key);
        Ok(Authority { cluster: cluster.to_owned(), certificate, issuer })
    }

    /// Reads `ca.pem` and `ca.key` of a folder.
    pub fn read(folder: &Path) -> Result<Authority> {
        let certificate = read(&folder.join("ca.pem"))?;
        let key = folder.join("ca.key");
        let pair = KeyPair::from_pem(&read_key(&key)?).map_err(|e| unusable(&key, &e))?;
        let cluster = cluster_of(&certificate)?;
        // The issuer's name follows from the cluster's: no certificate need be taken apart for it.
        let issuer = Issuer::new(own(&cluster)?, pair);
        Ok(Authority { cluster, certificate, issuer })
    }

    /// Writes `ca.pem` and `ca.key` into a folder, where neither may be yet.
    ///
    /// On an error neither is a whole authority: remove both and write again.
    pub fn write(&self, folder: &Path) -> Result<()> {
        write(&folder.join("ca.key"), &self.issuer.key().serialize_pem(), 0o600, false)?;
        write(&folder.join("ca.pem"), &self.certificate, 0o644, false)
    }

    /// The cluster.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// The certificate that members and users are proven by, as PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Issues a certificate for a node, which others reach by these addresses or host names.
    pub fn member(&self, node: &str, hosts: &[&str]) -> Result<Credentials> {
        let usages = [ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(&Identity::member(&self.cluster, node)?, hosts, node, &usages)
    }

    /// Issues a certificate for a user, whom a server knows by it.
    pub fn user(&self, uid: u32) -> Result<Credentials> {
        let usages = [ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(&Identity::user(&self.cluster, uid)?, &[], &format!("uid {uid}"), &usages)
    }

    fn issue(
        &self,
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
        let certificate = params.signed_by(&key, &self.issuer).map_err(|e| unmade(&e))?.pem();
        let authority = self.certificate.clone();
        Ok(Credentials { authority, certificate, key: key.serialize_pem() })
    }
}

impl Credentials {
    /// Writes `NAME.pem` and `NAME.key` into a folder, in place of those that are there, and
    /// `ca.pem` if there is none.
    pub fn write(&self, folder: &Path, name: &str) -> Result<()> {
        let name = checked("file", name)?;
        write(&folder.join(format!("{name}.key")), &self.key, 0o600, true)?;
        write(&folder.join(format!("{name}.pem")), &self.certificate, 0o644, true)?;
        let authority = folder.join("ca.pem");
        if !authority.exists() {
            return write(&authority, &self.authority, 0o644, true);
        }
        if read(&authority)? == self.authority {
            return Ok(());
        }
        Err(Error::Argument(format!(
            "{} is another authority's: take another folder for this cluster",
            authority.display()
        )))
    }

    /// Reads `NAME.pem`, `NAME.key` and `ca.pem` of a folder.
    pub fn read(folder: &Path, name: &str) -> Result<Credentials> {
        let at = |suffix: &str| folder.join(format!("{name}.{suffix}"));
        Ok(Credentials {
            authority: read(&folder.join("ca.pem"))?,
            certificate: read(&at("pem"))?,
            key: read_key(&at("key"))?,
        })
    }
}

/// What the authority of a cluster says of itself.
fn own(cluster: &str) -> Result<CertificateParams> {
    let mut params = dated(&format!("engram {cluster}"));
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
