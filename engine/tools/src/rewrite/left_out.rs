//! What is left out since it is damaged: one realm must not keep all others from being copied.
//!
//! Work on a whole pool meets realms of many users. One that is damaged is left out, by name and
//! with what is wrong with it, and all else is done. The exception is what the caller could mend:
//! a realm of the caller's own is an error, unless the caller asked for less. Root works for all,
//! so for root no realm is the caller's own.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use engram_base::error::{Error, Kind, Result};
use engram_base::fail;
use engram_base::scope::Scope;
use engram_base::user;
use engram_files::paths;

pub(super) const ROOT: u32 = 0;

/// A part of a pool that was left out, since it is damaged, or cannot be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Its namespace.
    pub namespace: String,
    /// Which of the namespace's realms it is; `None` for all of them.
    pub scope: Option<Scope>,
    /// The user whose it is: of a private realm its user, else the namespace's owner. `None` where
    /// nothing tells.
    pub user: Option<u32>,
    /// What is wrong with it.
    pub why: String,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = shown(&self.namespace, self.scope, self.user);
        write!(f, "{name}: {}", self.why)
    }
}

/// What a realm is called in messages.
pub(super) fn shown(namespace: &str, scope: Option<Scope>, user: Option<u32>) -> String {
    match (scope, user) {
        (Some(Scope::Private), Some(user)) => format!("{namespace} (private of user {user})"),
        (Some(Scope::Private), None) => format!("{namespace} (all that is private)"),
        (Some(Scope::Published), _) => format!("{namespace} (published)"),
        _ => namespace.to_owned(),
    }
}

/// Whether an error of opening or reading a realm is the realm's own fault.
pub(super) fn is_damage(error: &Error) -> bool {
    matches!(error.kind(), Kind::Corrupt | Kind::Format | Kind::NotFound | Kind::Os)
}

/// Whether a realm cannot be had now, for what its user does with it: it stands still in the middle
/// of work, or is open where it cannot be shared.
fn is_kept(error: &Error) -> bool {
    matches!(error.kind(), Kind::Busy | Kind::Unsupported)
}

/// What may be left out, and what was.
pub(super) struct LeavingOut {
    /// What the work is called in messages, such as "copied".
    pub done: &'static str,
    /// Whether also what is the caller's own.
    pub allow_partial: bool,
}

impl LeavingOut {
    /// Leaves a realm out for this error, or gives the error where it is not the realm's fault, or
    /// the realm is the caller's own. `NotFound` of a realm that is gone is neither.
    pub(super) fn leave(
        &self,
        pool: &Path,
        namespace: &str,
        scope: Option<Scope>,
        user: Option<u32>,
        error: Error,
    ) -> Result<LeftOut> {
        let owner = user.or_else(|| owner_of(pool, namespace));
        let (caller, others) = (user::current(), scope == Some(Scope::Private));
        let own = caller != ROOT && owner == Some(caller);
        let kept = is_kept(&error) && others && owner != Some(caller);
        // Nobody knows whether it is damaged: its user is to verify it.
        let kept = kept || error.kind() == Kind::Unverified && others && owner != Some(caller);
        if !is_damage(&error) && !kept {
            return Err(error);
        }
        if own && !self.allow_partial {
            let name = shown(namespace, scope, user);
            return Err(error.context(format!(
                "{name} is damaged, and yours: copy what is sound (`engram export --salvage`) and \
                 remove it, or have it left out (--allow-partial)"
            )));
        }
        let why = error.message().to_owned();
        Ok(LeftOut { namespace: namespace.to_owned(), scope, user: owner, why })
    }

    /// Refuses where nothing was done, since all that there is was left out.
    pub(super) fn refuse_nothing(&self, realms: u64, left_out: &[LeftOut]) -> Result<()> {
        let Some(first) = left_out.first().filter(|_| realms == 0) else { return Ok(()) };
        let more = match left_out.len() - 1 {
            0 => String::new(),
            more => format!(" (and {more} more)"),
        };
        fail!(
            Corrupt,
            "nothing could be {}: {first}{more}; copy what is sound (`engram export --salvage`)",
            self.done
        )
    }
}

fn owner_of(pool: &Path, namespace: &str) -> Option<u32> {
    let meta = fs::symlink_metadata(paths::place(pool, namespace)).ok()?;
    Some(meta.uid())
}
