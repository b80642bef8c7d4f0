//! Snapshots that are held while everybody goes on writing: what they show stays, and is of one
//! commit.

use engram::{Error, Found, Kind, Member, Namespace, Result};

use crate::operation::GROUPS;
use crate::pool::{PAIR, SET, SET_MANY, with_words};
use crate::travel::RUN_WORDS;

/// What a snapshot shows of one object: path, identity, generation, and whose version the value is,
/// where nobody writes values in place.
type One = (String, u64, u32, Option<(u64, u64)>);
type Showed = Vec<One>;

/// A snapshot, and what it showed at first.
pub struct Snapshot {
    at: Namespace,
    slot: usize,
    showed: Showed,
}

impl Snapshot {
    /// Takes one. If the slot is this process's own (`own`), nobody else writes to its part of the
    /// pool: so that is shown as it is now.
    ///
    /// # Panics
    ///
    /// If it mixes two commits.
    pub fn take(namespace: &Namespace, slot: usize, own: bool) -> Self {
        let at = namespace.snapshot(None).expect("a snapshot");
        let showed = all_of(&at, slot).expect("looks at a new snapshot");
        if own {
            let now = part_of(namespace, slot).expect("looks");
            let then = part_of(&at, slot).expect("looks at a new snapshot");
            assert_eq!(then, now, "a snapshot shows w{slot} as it is not");
        }
        Snapshot { at, slot, showed }
    }

    /// Looks at everything again; `false` if the snapshot was given up.
    ///
    /// # Panics
    ///
    /// If it shows anything else.
    pub fn check(&self) -> bool {
        match all_of(&self.at, self.slot) {
            Ok(shows) => {
                assert_eq!(shows, self.showed, "a snapshot of w{} changes", self.slot);
                true
            }
            Err(error) if error.kind() == Kind::Busy => false,
            Err(error) => panic!("looking at a snapshot of w{}: {error}", self.slot),
        }
    }

    /// In a forked child, which has no part in it.
    ///
    /// # Panics
    ///
    /// If it has.
    pub fn forget(self) {
        assert!(
            all_of(&self.at, self.slot).is_err(),
            "a child looks through its parent's snapshot"
        );
    }
}

/// What a worker's part of the pool shows, and what everybody writes: of the latter each member in
/// a look of its own, which only a snapshot keeps together.
fn all_of(at: &Namespace, slot: usize) -> Result<Showed> {
    let mut all = part_of(at, slot)?;
    for (group, many) in [(PAIR, 2), (SET, SET_MANY)] {
        let mut seen = Vec::new();
        for place in 0..many {
            let path = format!("{group}/{place}");
            if let Some(found) = at.find(at.root(), &path)? {
                seen.push((path, found));
            }
        }
        assert!(seen.is_empty() || seen.len() == many, "a snapshot has {seen:?} of {group}");
        let mut shown = Vec::new();
        for (path, found) in seen {
            shown.push(value_of(at, path, found, true)?);
        }
        let one = shown.windows(2).all(|two| two[0].3 == two[1].3);
        assert!(one, "a snapshot mixes two commits in {group}: {shown:?}");
        all.extend(shown);
    }
    Ok(all)
}

/// What a worker's own part of the pool shows.
fn part_of(at: &Namespace, slot: usize) -> Result<Showed> {
    let mut all = Vec::new();
    let own = (0..GROUPS).map(|group| (format!("w{slot}/g{group}"), false));
    let travel = ["t", "run"].map(|name| (format!("w{slot}/{name}"), true));
    for (group, values) in own.chain(travel) {
        let Some(Member::Group(gid)) = at.lookup(at.root(), &group)? else { continue };
        let members = at.list_found(gid, None, 100)?;
        let whole = members.len() == RUN_WORDS.len() || !group.ends_with("run");
        assert!(whole, "a snapshot has {} members of {group}", members.len());
        for (name, found) in members {
            all.push(value_of(at, format!("{group}/{name}"), found, values)?);
        }
    }
    Ok(all)
}

fn value_of(at: &Namespace, path: String, found: Found, value: bool) -> Result<One> {
    let Found::Object(info) = found else {
        return Err(Error::new(Kind::Corrupt, format!("{path} is a group")));
    };
    let whose = if value {
        let (payload, _) = at.payload(info.oid)?;
        let whole = with_words(&payload, |words| words.whole());
        Some(whole.unwrap_or_else(|why| panic!("{path} in a snapshot: {why}")))
    } else {
        None
    };
    Ok((path, info.oid, info.generation, whose))
}
