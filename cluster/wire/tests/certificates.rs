//! Who is let in: those whom the cluster's own authority knows, and under their own name.

mod common;

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use common::{any, serve};
use engram_wire::{
    Ask, Authority, Client, Credentials, Error, Headers, Identity, Limits, Method, Request,
    Response, Server, Tls, Who,
};
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair, SanType};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

type Seen = Arc<Mutex<Vec<Option<Identity>>>>;

/// A server of node `n1`, and whom it has answered.
fn member(authority: &Authority) -> (Server, String, Seen) {
    let tls = Tls::new(&authority.member("n1", &["127.0.0.1", "localhost"]).unwrap()).unwrap();
    let seen = Seen::default();
    let own = Arc::clone(&seen);
    let handler = move |request: Request| {
        own.lock().unwrap().push(request.peer);
        Response::new(200, "well")
    };
    let server = serve(Some(&tls), Limits::default(), Arc::new(handler));
    let address = server.address().to_string();
    (server, address, seen)
}

fn get(credentials: Option<&Credentials>, address: &str) -> engram_wire::Result<Vec<u8>> {
    let tls = credentials.map(|credentials| Tls::new(credentials).unwrap());
    Client::new(tls.as_ref()).get(address, "/", &Ask::default()).map(|answer| answer.body)
}

#[test]
fn a_handler_knows_members_and_users_by_their_certificates() {
    let authority = Authority::new("job-7").unwrap();
    let (_server, address, seen) = member(&authority);
    let port = address.rsplit(':').next().unwrap();
    let other = authority.member("n2", &["10.0.0.2"]).unwrap();
    let user = authority.user(1000).unwrap();
    assert_eq!(get(Some(&other), &address).unwrap(), b"well");
    assert_eq!(get(Some(&user), &format!("localhost:{port}")).unwrap(), b"well");
    let wanted = [Identity::member("job-7", "n2"), Identity::user("job-7", 1000)];
    assert_eq!(*seen.lock().unwrap(), wanted.map(Result::ok));
}

#[test]
fn a_session_that_is_taken_up_again_is_of_the_same_peer() {
    let authority = Authority::new("job").unwrap();
    let (_server, address, seen) = member(&authority);
    let tls = Tls::new(&authority.user(1000).unwrap()).unwrap();
    for _ in 0..3 {
        // Each client makes a connection of its own, by the tickets of the one before.
        Client::new(Some(&tls)).get(&address, "/", &Ask::default()).unwrap();
    }
    let user = Identity::user("job", 1000).ok();
    assert_eq!(*seen.lock().unwrap(), vec![user; 3]);
}

#[test]
fn large_bodies_go_both_ways() {
    let authority = Authority::new("job").unwrap();
    let tls = Tls::new(&authority.member("n1", &["127.0.0.1"]).unwrap()).unwrap();
    let handler = |mut request: Request| {
        let body = request.body.read_all(1 << 30).unwrap();
        Response::new(200, body)
    };
    let server = serve(Some(&tls), Limits::default(), Arc::new(handler));
    let (client, address) = (Client::new(Some(&tls)), server.address().to_string());
    let (none, ask) = (Headers::default(), Ask::default());
    for len in [0, 1, 16_383, 16_385, 3_000_000] {
        let body = common::pattern(len);
        let answer = client.request(Method::Post, &address, "/", &none, &body, &ask).unwrap();
        assert!(answer.body == body, "{len}");
    }
    assert_eq!(server.connections(), 1);
}

#[test]
fn strangers_are_refused_whatever_they_call_themselves() {
    let (_server, address, seen) = member(&Authority::new("job").unwrap());
    let stranger = Authority::new("job").unwrap().user(0).unwrap();
    assert!(matches!(get(Some(&stranger), &address), Err(Error::Tls(_))));
    // Without a certificate, and without TLS.
    assert!(matches!(get(None, &address), Err(Error::Broken(_) | Error::Deadline(_))));
    assert!(seen.lock().unwrap().is_empty());
}

#[test]
fn a_name_that_is_not_in_the_certificate_is_refused() {
    let authority = Authority::new("job").unwrap();
    let tls = Tls::new(&authority.member("n1", &["10.0.0.1"]).unwrap()).unwrap();
    let handler = |_: Request| Response::new(200, "");
    let server = serve(Some(&tls), Limits::default(), Arc::new(handler));
    let got = get(Some(&authority.user(0).unwrap()), &server.address().to_string());
    assert!(matches!(got, Err(Error::Tls(_))), "{got:?}");
}

#[test]
fn a_users_certificate_serves_nobody() {
    let tls = Tls::new(&Authority::new("job").unwrap().user(1000).unwrap()).unwrap();
    let handler = Arc::new(|_: Request| Response::new(200, ""));
    let started = Server::bind(any(), Some(&tls), Limits::default(), handler);
    assert!(matches!(started.err(), Some(Error::Argument(_))));
}

/// A certificate of one cluster's authority with the name of another cluster.
fn of_another_cluster(folder: &std::path::Path) -> (CertificateDer<'static>, KeyPair) {
    forged(folder, "ca", "engram job", "engram://other/member/n1")
}

/// A certificate that a root of a folder signs, whomever it speaks for.
fn forged(
    folder: &std::path::Path,
    root: &str,
    name: &str,
    whom: &str,
) -> (CertificateDer<'static>, KeyPair) {
    let key = std::fs::read_to_string(folder.join(format!("{root}.key"))).unwrap();
    let mut own = CertificateParams::default();
    own.distinguished_name = rcgen::DistinguishedName::new();
    own.distinguished_name.push(DnType::CommonName, name);
    let issuer = Issuer::new(own, KeyPair::from_pem(&key).unwrap());
    let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    let uri = whom.try_into().unwrap();
    params.subject_alt_names.push(SanType::URI(uri));
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let pair = KeyPair::generate().unwrap();
    (params.signed_by(&pair, &issuer).unwrap().der().clone(), pair)
}

#[test]
fn a_certificate_of_another_cluster_is_refused_though_one_authority_has_issued_it() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new("job").unwrap();
    authority.write(folder.path()).unwrap();
    let (certificate, key) = of_another_cluster(folder.path());
    let private = || PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    let root = CertificateDer::from_pem_slice(authority.certificate().as_bytes()).unwrap();
    roots.add(root).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());

    // As a client: the handshake is right, and no request is answered.
    let (_server, address, seen) = member(&authority);
    let config = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![certificate.clone()], private())
        .unwrap();
    let name = "127.0.0.1".try_into().unwrap();
    let tls = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = rustls::StreamOwned::new(tls, TcpStream::connect(&address).unwrap());
    let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.is_empty() && seen.lock().unwrap().is_empty());

    // As a server: nothing is asked of it.
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], private())
        .unwrap();
    let listener = TcpListener::bind(any()).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let heard = Arc::new(AtomicUsize::new(0));
    let hears = Arc::clone(&heard);
    let serving = std::thread::spawn(move || {
        let tls = rustls::ServerConnection::new(Arc::new(config)).unwrap();
        let mut stream = rustls::StreamOwned::new(tls, listener.accept().unwrap().0);
        let mut request = Vec::new();
        let _ = stream.read_to_end(&mut request);
        hears.store(request.len(), Ordering::Relaxed);
    });
    let got = get(Some(&authority.user(0).unwrap()), &address);
    assert!(matches!(&got, Err(Error::Tls(text)) if text.contains("another cluster")), "{got:?}");
    serving.join().unwrap();
    assert_eq!(heard.load(Ordering::Relaxed), 0);

    // And nobody takes it for one's own.
    let certificate = rcgen_pem(&certificate);
    let own = Credentials {
        authority: authority.certificate().to_owned(),
        users: None,
        certificate,
        key: key.serialize_pem(),
    };
    assert!(matches!(Tls::new(&own).err(), Some(Error::Tls(_))));
}

/// A certificate as PEM: lines of base64.
fn rcgen_pem(der: &CertificateDer<'_>) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::from("-----BEGIN CERTIFICATE-----\n");
    for line in der.chunks(48) {
        for three in line.chunks(3) {
            let mut word = 0_u32;
            (0..3).for_each(|at| word = word << 8 | u32::from(*three.get(at).unwrap_or(&0)));
            for at in 0..4 {
                let digit = DIGITS[(word >> (18 - 6 * at) & 63) as usize] as char;
                text.push(if at <= three.len() { digit } else { '=' });
            }
        }
        text.push('\n');
    }
    text + "-----END CERTIFICATE-----\n"
}

#[test]
fn a_root_proves_users_or_members_and_not_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new("job").unwrap();
    authority.write(folder.path()).unwrap();
    let (_server, address, seen) = member(&authority);
    let shown = |root: &str, name: &str, whom: &str| {
        let (certificate, key) = forged(folder.path(), root, name, whom);
        let certificate = rcgen_pem(&certificate);
        let (authority, key) = (authority.certificate().to_owned(), key.serialize_pem());
        get(Some(&Credentials { authority, users: None, certificate, key }), &address)
    };
    assert_eq!(shown("users", "engram job users", "engram://job/user/7").unwrap(), b"well");
    assert_eq!(shown("ca", "engram job", "engram://job/member/n9").unwrap(), b"well");
    // The holder of the one key cannot make the other's certificates, under either name.
    for (root, name, whom) in [
        ("users", "engram job users", "engram://job/member/n1"),
        ("users", "engram job", "engram://job/member/n1"),
        ("ca", "engram job", "engram://job/user/7"),
        ("ca", "engram job users", "engram://job/user/7"),
    ] {
        assert!(shown(root, name, whom).is_err(), "{root} {name} {whom}");
    }
    assert_eq!(seen.lock().unwrap().len(), 2);
}

#[test]
fn an_authority_that_is_read_again_is_the_same_one() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new("job").unwrap();
    authority.write(folder.path()).unwrap();
    assert!(matches!(authority.write(folder.path()), Err(Error::Os(_))), "one is there");
    let again = Authority::read(folder.path()).unwrap();
    assert_eq!((again.cluster(), again.certificate()), ("job", authority.certificate()));
    let (_server, address, _) = member(&authority);
    assert_eq!(get(Some(&again.user(7).unwrap()), &address).unwrap(), b"well");
    let key = folder.path().join("ca.key");
    assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o640)).unwrap();
    assert!(matches!(Authority::read(folder.path()).err(), Some(Error::Tls(_))));
    for odd in ["", "a/b", ".", "a b"] {
        assert!(matches!(Authority::new(odd).err(), Some(Error::Argument(_))), "{odd:?}");
        assert!(matches!(authority.member(odd, &[]).err(), Some(Error::Argument(_))), "{odd:?}");
    }
}

#[test]
fn files_are_those_that_other_programs_take() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new("job").unwrap();
    authority.member("n1", &["127.0.0.1", "n1.site"]).unwrap().write(folder.path(), "n1").unwrap();
    authority.user(1000).unwrap().write(folder.path(), "user").unwrap();
    let other = Authority::new("job").unwrap().user(1).unwrap();
    assert!(matches!(other.write(folder.path(), "other"), Err(Error::Argument(_))));
    let read = Credentials::read(folder.path(), "n1").unwrap();
    assert_eq!(Tls::new(&read).unwrap().own(), &Identity::member("job", "n1").unwrap());
    if Command::new("openssl").arg("version").output().is_err() {
        eprintln!("openssl is not there to look at the files");
        return;
    }
    let proven = |root: &str, name: &str, purpose: &str| {
        let mut openssl = Command::new("openssl");
        openssl.current_dir(folder.path()).args(["verify", "-x509_strict", "-CAfile", root]);
        openssl.args(["-purpose", purpose, name]).output().unwrap().status.success()
    };
    // Peers of etcd are both.
    assert!(proven("ca.pem", "n1.pem", "sslserver") && proven("ca.pem", "n1.pem", "sslclient"));
    // A user's certificate opens nothing that believes the members' root alone, such as etcd.
    assert!(!proven("ca.pem", "user.pem", "sslclient"));
    assert!(proven("users.pem", "user.pem", "sslclient"));
    assert!(!proven("users.pem", "user.pem", "sslserver"));
}

#[test]
fn a_user_takes_its_share_and_members_are_answered_beside_it() {
    let authority = Authority::new("job").unwrap();
    let tls = Tls::new(&authority.member("n1", &["127.0.0.1"]).unwrap()).unwrap();
    let (entered, enters) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let handler = move |request: Request| {
        if matches!(request.peer, Some(Identity { who: Who::User(_), .. })) {
            entered.send(()).unwrap();
            released.lock().unwrap().recv().unwrap();
        }
        Response::new(200, "answered")
    };
    let limits = Limits { connections: 16, handlers: 4, ..Limits::default() };
    let server = serve(Some(&tls), limits, Arc::new(handler));
    let address = server.address().to_string();
    let ask = |who: Credentials| {
        let address = address.clone();
        std::thread::spawn(move || {
            let client = Client::new(Some(&Tls::new(&who).unwrap()));
            let answer = client.get(&address, "/", &Ask::default()).unwrap();
            (answer.status, String::from_utf8(answer.body).unwrap())
        })
    };
    // Of four handlers a user has one, of 16 connections four.
    let mut users: Vec<_> = (0..5).map(|_| ask(authority.user(1000).unwrap())).collect();
    enters.recv().unwrap();
    common::until(|| users.iter().any(std::thread::JoinHandle::is_finished));
    let fifth = users.iter().position(std::thread::JoinHandle::is_finished).unwrap();
    let refused = users.swap_remove(fifth).join().unwrap();
    assert_eq!(refused.0, 503);
    assert!(refused.1.ends_with("close some, or have fewer\n"), "{refused:?}");
    let answered = (200, "answered".to_owned());
    let other = ask(authority.user(1001).unwrap());
    enters.recv().unwrap();
    for _ in 0..3 {
        assert_eq!(ask(authority.member("n2", &["127.0.0.1"]).unwrap()).join().unwrap(), answered);
    }
    // The first user's others have waited all the while.
    assert!(enters.try_recv().is_err());
    for _ in 0..5 {
        release.send(()).unwrap();
    }
    for one in users.into_iter().chain([other]) {
        assert_eq!(one.join().unwrap(), answered);
    }
    // What was taken is given back.
    release.send(()).unwrap();
    assert_eq!(ask(authority.user(1000).unwrap()).join().unwrap(), answered);
}
