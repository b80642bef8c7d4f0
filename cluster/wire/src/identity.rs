//! Who a certificate speaks for: a member or a user of one cluster, as a URI.
//!
//! The URI is a subject alternative name of the certificate: `engram://CLUSTER/member/NODE` or
//! `engram://CLUSTER/user/UID`. A certificate with none, or with two, speaks for nobody.

use std::fmt;

use crate::error::{Error, Result};

const SCHEME: &str = "engram://";
const LONGEST: usize = 64;

/// Who the other side of a connection is, as its certificate says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The cluster whose authority has issued the certificate.
    pub cluster: String,
    /// Whom in the cluster it speaks for.
    pub who: Who,
}

/// Whom in a cluster a certificate speaks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Who {
    /// A node, which serves and asks.
    Member(String),
    /// A user of the kernel, who asks only.
    User(u32),
}

impl Identity {
    /// The identity of a node.
    pub fn member(cluster: &str, node: &str) -> Result<Identity> {
        let who = Who::Member(checked("node", node)?);
        Ok(Identity { cluster: checked("cluster", cluster)?, who })
    }

    /// The identity of a user.
    pub fn user(cluster: &str, uid: u32) -> Result<Identity> {
        Ok(Identity { cluster: checked("cluster", cluster)?, who: Who::User(uid) })
    }

    /// Reads the URI of a certificate.
    pub fn of_uri(uri: &str) -> Result<Identity> {
        let odd = || Error::Tls(format!("{uri:?} names no member and no user of a cluster"));
        let mut parts = uri.strip_prefix(SCHEME).ok_or_else(odd)?.split('/');
        let (cluster, kind, name) = (parts.next(), parts.next(), parts.next());
        match (cluster, kind, name, parts.next()) {
            (Some(cluster), Some("member"), Some(node), None) => Identity::member(cluster, node),
            (Some(cluster), Some("user"), Some(uid), None) => {
                let number: u32 = uid.parse().map_err(|_| odd())?;
                // One user has one URI: `+7` and `007` are others.
                if number.to_string() == uid { Identity::user(cluster, number) } else { Err(odd()) }
            }
            _ => Err(odd()),
        }
        .map_err(|_| odd())
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.who {
            Who::Member(node) => write!(f, "{SCHEME}{}/member/{node}", self.cluster),
            Who::User(uid) => write!(f, "{SCHEME}{}/user/{uid}", self.cluster),
        }
    }
}

/// A name that can stand in a URI, and in the name of a file.
pub(crate) fn checked(what: &str, name: &str) -> Result<String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.is_empty() || name.len() > LONGEST || !name.chars().all(fits) || name.starts_with('.') {
        return Err(Error::Argument(format!(
            "{name:?} cannot be the name of a {what}: take 1 to {LONGEST} letters, digits, \
             '.', '_' or '-', and no '.' at the beginning"
        )));
    }
    Ok(name.to_owned())
}

/// The URI that an authority has in its own certificate.
pub(crate) fn of_authority(cluster: &str) -> String {
    format!("{SCHEME}{cluster}")
}

/// The cluster of an authority's URI.
pub(crate) fn cluster_of(uri: &str) -> Option<String> {
    checked("cluster", uri.strip_prefix(SCHEME)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_is_read_as_it_was_written_and_no_other_is() {
        for one in [Identity::member("job-7", "n1.site"), Identity::user("job-7", 1000)] {
            let one = one.unwrap();
            assert_eq!(Identity::of_uri(&one.to_string()), Ok(one));
        }
        for odd in [
            "engram://job",
            "engram://job/member/",
            "engram:///member/n1",
            "engram://job/user/-1",
            "engram://job/user/007",
            "engram://job/member/n1/more",
            "https://job/member/n1",
        ] {
            assert!(matches!(Identity::of_uri(odd), Err(Error::Tls(_))), "{odd}");
        }
    }
}
