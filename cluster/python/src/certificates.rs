//! A cluster's certificates, as folders have them.

use std::path::PathBuf;

use engram_driver::error::Error;
use engram_wire::{Authority, Credentials, Tls};
use pyo3::prelude::*;
use rustix::system::uname;

use crate::error::raised;

/// Names of the files of who has a certificate.
const MEMBER: &str = "member";
const USER: &str = "user";

fn failed(error: engram_wire::Error) -> PyErr {
    raised(&Error::from(error))
}

/// The host's name, as far as a certificate can have it.
fn host_name() -> String {
    let name = uname().nodename().to_string_lossy().into_owned();
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let plain: String = name.chars().filter(|c| fits(*c)).take(64).collect();
    let plain = plain.trim_start_matches('.');
    if plain.is_empty() { "host".to_owned() } else { plain.to_owned() }
}

/// A certificate of this host's, for others that reach it under these names, too.
fn of_host(authority: &Authority, hosts: &[&str]) -> engram_wire::Result<Credentials> {
    let name = host_name();
    let mut all = vec!["localhost", "127.0.0.1", "::1"];
    all.extend(hosts.iter().filter(|host| !all.contains(*host)).copied().collect::<Vec<_>>());
    if name != "host" && !all.contains(&name.as_str()) {
        all.push(&name);
    }
    authority.member(&name, &all)
}

/// What a folder has for this process; none without a folder. With an authority's key the process
/// issues its own certificate; without one it has that of a member, or of a user.
pub fn tls(folder: Option<&PathBuf>, hosts: &[&str]) -> PyResult<Option<Tls>> {
    let Some(folder) = folder else { return Ok(None) };
    let there = |name: &str| folder.join(name).exists();
    let credentials = if there("member.pem") {
        Credentials::read(folder, MEMBER)
    } else if there("user.pem") {
        Credentials::read(folder, USER)
    } else if there("ca.key") {
        Authority::read(folder).and_then(|authority| of_host(&authority, hosts))
    } else {
        return Err(raised(&Error::Argument(format!(
            "{} has no certificates: neither member.pem nor user.pem, nor the authority's ca.key; \
             `engram cluster certify` writes them",
            folder.display()
        ))));
    };
    credentials.and_then(|own| Tls::new(&own)).map(Some).map_err(failed)
}

/// Makes the authority of a cluster in a folder, unless it is there.
#[pyfunction]
pub fn make_authority(folder: PathBuf, cluster: &str) -> PyResult<()> {
    if folder.join("ca.pem").exists() {
        let there = Authority::read(&folder).map_err(failed)?;
        if there.cluster() == cluster {
            return Ok(());
        }
        return Err(raised(&Error::Argument(format!(
            "{} has the authority of cluster {:?}, not of {cluster:?}: take another folder",
            folder.display(),
            there.cluster()
        ))));
    }
    Authority::new(cluster).and_then(|made| made.write(&folder)).map_err(failed)
}

/// Writes the certificate of a host's processes, `NAME.pem` and `NAME.key`, with the roots.
#[pyfunction]
pub fn certify_host(
    authority: PathBuf,
    hosts: Vec<String>,
    out: PathBuf,
    name: &str,
) -> PyResult<()> {
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    let issued = Authority::read(&authority).and_then(|authority| of_host(&authority, &hosts));
    issued.and_then(|own| own.write(&out, name)).map_err(failed)
}

/// Writes the certificate of a user, `user.pem` and `user.key`, with the root of members.
#[pyfunction]
pub fn certify_user(authority: PathBuf, uid: u32, out: PathBuf) -> PyResult<()> {
    let issued = Authority::read(&authority).and_then(|authority| authority.user(uid));
    issued.and_then(|own| own.write(&out, USER)).map_err(failed)
}
