//! Scopes: an object is in one realm of a namespace.
//!
//! A member that moves is in two for a while, and marks say so. The realms are walked one after the
//! other, so a member that moves meanwhile is found in both without a mark. Therefore a member that
//! seems to be in two realms is looked at again: in the one, in the other, and in the first once
//! more. If it was there each time, unmarked, then it has not gone from the first to the second in
//! between (it would be marked there now, or gone); and if nothing has arrived in the first
//! meanwhile, it has not come back from the second either. So it is in both, and nothing moves it.
//!
//! That a *name* is in two scopes is no fault: a private member may hide a shared one. Nor is it
//! one that a group is true in two: two users who do not see each other's have both changed it
//! (`mirror::own`), and a reader that sees both goes by the first.

use std::collections::HashMap;

use super::catalog::is_damage;
use super::{RecordFacts, Report};
use engram_base::error::{Kind, Result};
use engram_base::id::{Member, id_key};
use engram_catalog::Table;
use engram_catalog::meta::meta_u64;
use engram_ops::group::{path_of, table_of};
use engram_ops::marks::ARRIVED;
use engram_pool::published::with_newest;
use engram_realm::process;
use engram_realm::{Purpose, Setup};
use engram_records::object::Record;

/// How often one looks again while things arrive.
const TRIES: u32 = 50;

/// A realm that was walked, and what is in it for itself.
pub(super) struct Walked {
    /// What the report calls it.
    pub name: String,
    pub setup: Setup,
    pub members: Vec<Member>,
}

/// What a walk has found, as far as it is in the realm for itself.
pub(super) fn members_of(objects: &HashMap<u64, RecordFacts>) -> Vec<Member> {
    objects.keys().map(|oid| Member::Object(*oid)).collect()
}

/// Finds a realm's newest version, if it is the published one.
type Newest<'f> = dyn Fn() -> Result<Option<Setup>> + 'f;

impl Report {
    /// Tells what is in two realms of a namespace, and is not on its way. A published realm comes
    /// last.
    pub(super) fn scopes(&mut self, all: &[Walked], newest: &Newest<'_>) -> Result<()> {
        let (mut homes, mut suspects) = (HashMap::new(), HashMap::<_, Vec<Member>>::new());
        for (place, realm) in all.iter().enumerate() {
            for member in &realm.members {
                if let Some(other) = homes.insert(*member, place) {
                    suspects.entry((other, place)).or_default().push(*member);
                }
            }
        }
        for ((one, other), members) in suspects {
            let (one, other) = (&all[one], &all[other]);
            let found = match in_both(&one.setup, &other.setup, newest, &members) {
                Err(error) if is_damage(&error) => {
                    let what = format!("it cannot be compared with {}: {error}", other.name);
                    self.tell(&one.name, vec![what]);
                    continue;
                }
                found => found?,
            };
            let (first, second) = (one.setup.scope.as_str(), other.setup.scope.as_str());
            let mut told: Vec<String> = found
                .into_iter()
                .map(|(member, path)| {
                    format!(
                        "{member:?}, {path:?}, is in two scopes, {first} ({}) and {second} ({}), \
                         and nothing moves it: delete it twice, and store it anew",
                        one.name, other.name
                    )
                })
                .collect();
            told.sort();
            self.tell(&one.name, told);
        }
        Ok(())
    }
}

/// Returns those of the members that are in both realms though no move is under way.
fn in_both(
    one: &Setup,
    other: &Setup,
    newest: &Newest<'_>,
    members: &[Member],
) -> Result<Vec<(Member, String)>> {
    for _ in 0..TRIES {
        let before = look(one, members)?;
        let beside = if other.immutable {
            with_newest(newest, |setup| look(&setup, members))?.unwrap_or_default()
        } else {
            look(other, members)?
        };
        let after = look(one, members)?;
        if before.arrived == after.arrived {
            let in_both = |(member, _): &(Member, String)| {
                before.there.contains_key(member) && beside.there.contains_key(member)
            };
            return Ok(after.there.into_iter().filter(in_both).collect());
        }
    }
    // Things come and go all the time: their traces are for a quieter hour.
    Ok(Vec::new())
}

/// What one look at a realm finds.
#[derive(Default)]
struct RealmMembers {
    /// How many moves have arrived there.
    arrived: u64,
    /// Members that are there for themselves, and not on their way, with their paths.
    there: HashMap<Member, String>,
}

fn look(setup: &Setup, members: &[Member]) -> Result<RealmMembers> {
    let core = match process::core_of(setup.clone(), Purpose::Verify) {
        // Its user has removed it, or closed it to us.
        Err(error) if matches!(error.kind(), Kind::NotFound | Kind::Access) => {
            return Ok(RealmMembers::default());
        }
        opened => opened?,
    };
    let seen = (|| {
        let inside = core.enter()?;
        let txn = inside.read()?;
        let arrived = meta_u64(txn.get(Table::Meta, ARRIVED)?)?;
        let mut there = HashMap::new();
        for member in members {
            let (table, key) = table_of(*member);
            let Some(row) = txn.get(table, &key)? else { continue };
            let stands_in = table == Table::Groups && Record::parse(row)?.flags.mirror;
            if !stands_in && txn.get(Table::Leaving, &id_key(member.id()))?.is_none() {
                let path = path_of(&mut txn.rows(), *member).unwrap_or_default();
                there.insert(*member, path);
            }
        }
        Ok(RealmMembers { arrived, there })
    })();
    core.remove_session();
    seen
}
