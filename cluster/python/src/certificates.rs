//! A cluster's certificates, as folders have them.

use std::path::PathBuf;

use engram_driver::credentials::{self, USER, of_host};
use engram_driver::error::Error;
use engram_wire::{Authority, Tls};
use pyo3::prelude::*;

use crate::error::{raised, told};

fn failed(error: engram_wire::Error) -> PyErr {
    raised(&Error::from(error))
}

/// What a folder has for this process; none without a folder.
pub fn tls(folder: Option<&PathBuf>, hosts: &[&str]) -> PyResult<Option<Tls>> {
    told(credentials::tls(folder.map(PathBuf::as_path), hosts))
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
