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
    pub(crate) server: Arc<ServerConfig>,
    pub(crate) client: Arc<ClientConfig>,
}

impl Tls {
    /// Takes a certificate, its key and the authority of its cluster.
    pub fn new(credentials: &Credentials) -> Result<Tls> {
        let chain = chain(&credentials.certificate)?;
        let cluster = cluster_of(&credentials.authority)?;
        let own = identity_of(&chain)?;
        if own.cluster != cluster {
            return Err(Error::Tls(format!(
                "the certificate of {own} goes with its own cluster's authority, not with that of \
                 {cluster:?}: take the ca.pem that was written beside it"
            )));
        }
        let roots = Arc::new(roots(&credentials.authority)?);
        let provider = Arc::new(provider());
        let server = server(&provider, &roots, &chain, &credentials.key)?;
        let client = client(&provider, roots, chain, &credentials.key)?;
        Ok(Tls { own, server: Arc::new(server), client: Arc::new(client) })
    }

    /// Whom the own certificate speaks for.
    pub fn own(&self) -> &Identity {
        &self.own
    }

    /// Who the other side is; an error where it is of another cluster, though of one authority.
    pub(crate) fn peer(&self, shown: Option<&[CertificateDer<'_>]>) -> Result<Identity> {
        let peer = identity_of(shown.unwrap_or(&[]))?;
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

fn roots(authority: &str) -> Result<RootCertStore> {
    let mut store = RootCertStore::empty();
    for certificate in chain(authority)? {
        store.add(certificate).map_err(|e| unusable(&e))?;
    }
    Ok(store)
}

/// Whom the first certificate of a chain speaks for.
fn identity_of(shown: &[CertificateDer<'_>]) -> Result<Identity> {
    let first = shown.first().ok_or_else(|| Error::Tls("no certificate was shown".into()))?;
    let parsed = webpki::EndEntityCert::try_from(first)
        .map_err(|e| Error::Tls(format!("a certificate cannot be read: {e}")))?;
    let mut names = parsed.valid_uri_names();
    match (names.next(), names.next()) {
        (Some(uri), None) => Identity::of_uri(uri),
        (None, _) => Err(Error::Tls("a certificate names no member and no user".into())),
        (Some(_), Some(_)) => Err(Error::Tls("a certificate speaks for two".into())),
    }
}
