//! A cluster's certificates, as folders have them.

use std::path::Path;

use engram_wire::{Authority, Credentials, Tls};
use rustix::system::uname;

use crate::error::{Error, Result};

/// The name of the files of a member's certificate.
const MEMBER: &str = "member";
/// The name of the files of a user's certificate.
pub const USER: &str = "user";

/// The host's name, as far as a certificate can have it.
pub fn host_name() -> String {
    let name = uname().nodename().to_string_lossy().into_owned();
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let plain: String = name.chars().filter(|c| fits(*c)).take(64).collect();
    let plain = plain.trim_start_matches('.');
    if plain.is_empty() { "host".to_owned() } else { plain.to_owned() }
}

/// A certificate of this host's, for others that reach it under these names, too.
pub fn of_host(authority: &Authority, hosts: &[&str]) -> engram_wire::Result<Credentials> {
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
pub fn tls(folder: Option<&Path>, hosts: &[&str]) -> Result<Option<Tls>> {
    let Some(folder) = folder else { return Ok(None) };
    let there = |name: &str| folder.join(name).exists();
    let credentials = if there("member.pem") {
        Credentials::read(folder, MEMBER)
    } else if there("user.pem") {
        Credentials::read(folder, USER)
    } else if there("ca.key") {
        Authority::read(folder).and_then(|authority| of_host(&authority, hosts))
    } else {
        return Err(Error::Argument(format!(
            "{} has no certificates: neither member.pem nor user.pem, nor the authority's ca.key; \
             `engram cluster certify` writes them",
            folder.display()
        )));
    };
    Ok(Some(credentials.and_then(|own| Tls::new(&own))?))
}
