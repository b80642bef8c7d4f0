//! What is not as it was in a salvaged namespace: who may see it.

use std::path::Path;

use super::Loss;
use super::gather::{Gathered, Whose};
use engram_base::user;
use engram_pool::namespace;

/// The mode of the namespaces that a salvage makes.
const MODE: u32 = 0o700;

/// What is to be said of a namespace, whose members all come to the shared realm of one that is
/// this user's alone.
pub(super) fn of(pool: &Path, name: &str, gathered: &Gathered) -> Vec<Loss> {
    let mut said = Vec::new();
    // One whose description is damaged was told of when its realms were looked for.
    if let Ok(info) = namespace::info(pool, name) {
        let user = user::current();
        if info.mode != MODE || info.owner != user {
            said.push(format!(
                "its mode was {:03o}, its owner {}, its group {}: here its mode is {MODE:o}, its \
                 owner {}; to let others in, make a namespace of that mode and move what they may \
                 see",
                info.mode,
                user::shown(info.owner),
                info.group,
                user::shown(user)
            ));
        }
    }
    for (whose, (objects, groups)) in gathered.elsewhere() {
        let many = |count: u64, what: &str| match count {
            1 => format!("1 {what}"),
            _ => format!("{count} {what}s"),
        };
        let (count, was) = (
            format!("{} and {}", many(objects, "object"), many(groups, "group")),
            match whose {
                Whose::User(user) => format!("private to {}", user::shown(user)),
                Whose::Shared => continue,
                Whose::All => "published".to_owned(),
            },
        );
        said.push(format!("{count} of it were {was}: here their scope is shared"));
    }
    let loss = |what| Loss { namespace: name.to_owned(), path: String::new(), what };
    said.into_iter().map(loss).collect()
}
