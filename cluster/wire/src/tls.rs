//! TLS 1.3 between members of one cluster: each side proves that the cluster's authority knows it.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::authority::{Credentials, cluster_of};
use crate::error::{Error, Result};
use crate::identity::{Identity, Who};

/// What one side shows, and what it takes: one cluster's authority, and no other.
#[derive(Clone)]
pub struct Tls {
    own: Identity,
    /// The name of the root that proves members.
    members: Vec<u8>,
    /// The name of the root that proves users, where these are served.
    users: Option<Vec<u8>>,
    pub(crate) server: Arc<ServerConfig>,
    pub(crate) client: Arc<ClientConfig>,
}

impl Tls {
    /// Takes a certificate, its key and the authority of its cluster.
    pub fn new(credentials: &Credentials) -> Result<Tls> {
        let chain = chain(&credentials.certificate)?;
        let cluster = cluster_of(&credentials.authority)?;
        let (own, _) = identity_of(&chain)?;
        if own.cluster != cluster {
            return Err(Error::Tls(format!(
                "the certificate of {own} goes with its own cluster's authority, not with that of \
                 {cluster:?}: take the ca.pem that was written beside it"
            )));
        }
        let (mut served, mut believed) = (RootCertStore::empty(), RootCertStore::empty());
        let members = add_root(&mut believed, &credentials.authority)?;
        add_root(&mut served, &credentials.authority)?;
        let users = match &credentials.users {
            Some(users) if cluster_of(users)? == own.cluster => Some(add_root(&mut served, users)?),
            Some(_) => {
                let why = format!("users.pem is of another cluster than {own}: take its own");
                return Err(Error::Tls(why));
            }
            None => None,
        };
        if users.as_ref() == Some(&members) {
            return Err(Error::Tls("ca.pem and users.pem have one name".to_owned()));
        }
        let provider = Arc::new(provider());
        let server = server(&provider, &Arc::new(served), &chain, &credentials.key)?;
        let client = client(&provider, Arc::new(believed), chain, &credentials.key)?;
        Ok(Tls { own, members, users, server: Arc::new(server), client: Arc::new(client) })
    }

    /// Whom the own certificate speaks for.
    pub fn own(&self) -> &Identity {
        &self.own
    }

    /// Who the other side is; an error where it is of another cluster, though of one authority, or
    /// the root that proves users speaks of a member, or the reverse.
    ///
    /// The handshake has proven that the root of the issuer's name has signed the certificate.
    pub(crate) fn peer(&self, shown: Option<&[CertificateDer<'_>]>) -> Result<Identity> {
        let (peer, issuer) = identity_of(shown.unwrap_or(&[]))?;
        let is_proven = match peer.who {
            Who::Member(_) => issuer == self.members,
            Who::User(_) => Some(&issuer) == self.users.as_ref(),
        };
        if !is_proven {
            return Err(Error::Tls(format!("{peer} is not for the root to prove that says so")));
        }
        if peer.cluster == self.own.cluster {
            return Ok(peer);
        }
        Err(Error::Tls(format!(
            "{peer} is of another cluster than {}: ask at an address of this cluster",
            self.own
        )))
    }

    /// The peer of a client: a member, for nobody else serves.
    pub(crate) fn server_peer(&self, shown: Option<&[CertificateDer<'_>]>) -> Result<Identity> {
        match self.peer(shown)? {
            Identity { who: Who::User(uid), .. } => Err(Error::Tls(format!(
                "a server shows the certificate of user {uid}, no member's"
            ))),
            member => Ok(member),
        }
    }
}

/// The name under which a server is to be known: the host of its address.
pub(crate) fn name_of(host: &str) -> Result<ServerName<'static>> {
    ServerName::try_from(host.to_owned())
        .map_err(|_| Error::Argument(format!("{host:?} is no host name and no address")))
}

/// What a failed handshake or record means to the caller.
pub(crate) fn failed(who: &str, error: &rustls::Error) -> Error {
    let hint = match error {
        rustls::Error::InvalidCertificate(_) => {
            "its certificate is not of this cluster, not for this address, or out of date"
        }
        rustls::Error::AlertReceived(_) => {
            "it refuses the own certificate: take one of its cluster's authority"
        }
        _ => "it may speak no TLS 1.3, or no TLS",
    };
    Error::Tls(format!("{who}: {error}; {hint}"))
}

/// AES-128 stands first: it is as unbroken as AES-256, and a fifth faster.
fn provider() -> CryptoProvider {
    use rustls::crypto::ring::{cipher_suite, default_provider};
    let suites = vec![
        cipher_suite::TLS13_AES_128_GCM_SHA256,
        cipher_suite::TLS13_AES_256_GCM_SHA384,
        cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    ];
    CryptoProvider { cipher_suites: suites, ..default_provider() }
}

fn server(
    provider: &Arc<CryptoProvider>,
    roots: &Arc<RootCertStore>,
    chain: &[CertificateDer<'static>],
    key: &str,
) -> Result<ServerConfig> {
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::clone(roots), Arc::clone(provider))
            .build()
            .map_err(|e| Error::Tls(format!("the authority's certificate cannot be used: {e}")))?;
    let mut config = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|e| unusable(&e))?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain.to_vec(), private(key)?)
        .map_err(|e| unusable(&e))?;
    // The server decides which cipher it is, for it pays as much as the client.
    config.ignore_client_order = true;
    Ok(config)
}

fn client(
    provider: &Arc<CryptoProvider>,
    roots: Arc<RootCertStore>,
    chain: Vec<CertificateDer<'static>>,
    key: &str,
) -> Result<ClientConfig> {
    ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|e| unusable(&e))?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, private(key)?)
        .map_err(|e| unusable(&e))
}

fn unusable(error: &rustls::Error) -> Error {
    Error::Tls(format!("the certificate and its key cannot be used: {error}"))
}

fn private(key: &str) -> Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_slice(key.as_bytes())
        .map_err(|e| Error::Tls(format!("the key is no PEM that can be read: {e:?}")))
}

fn chain(certificate: &str) -> Result<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_slice_iter(certificate.as_bytes())
        .collect::<std::result::Result<Vec<_>, _>>()
        .map_err(|e| Error::Tls(format!("the certificate is no PEM that can be read: {e:?}")))
}

/// Believes a root; its name.
fn add_root(store: &mut RootCertStore, certificate: &str) -> Result<Vec<u8>> {
    let mut name = Vec::new();
    for certificate in chain(certificate)? {
        let parsed = webpki::EndEntityCert::try_from(&certificate)
            .map_err(|e| Error::Tls(format!("the authority's certificate cannot be read: {e}")))?;
        parsed.subject().clone_into(&mut name);
        store.add(certificate.clone()).map_err(|e| unusable(&e))?;
    }
    Ok(name)
}

/// Whom the first certificate of a chain speaks for, and the name of its issuer.
fn identity_of(shown: &[CertificateDer<'_>]) -> Result<(Identity, Vec<u8>)> {
    let first = shown.first().ok_or_else(|| Error::Tls("no certificate was shown".into()))?;
    let parsed = webpki::EndEntityCert::try_from(first)
        .map_err(|e| Error::Tls(format!("a certificate cannot be read: {e}")))?;
    let mut names = parsed.valid_uri_names();
    match (names.next(), names.next()) {
        (Some(uri), None) => Ok((Identity::of_uri(uri)?, parsed.issuer().to_owned())),
        (None, _) => Err(Error::Tls("a certificate names no member and no user".into())),
        (Some(_), Some(_)) => Err(Error::Tls("a certificate speaks for two".into())),
    }
}
