//! What is read-only, and what that refuses.

use super::{holds, refuse, refuse_deletion, refuse_deletions, refuse_new, set};
use crate::testing::{Lies, Op, ROOT, TestRows, after, at, here, object, stamp};
use engram_base::error::Kind;
use engram_base::id::{Gid, Member};
use engram_catalog::Table;

/// `a/b/c` and `a/d`, and `e`; then this one is made read-only.
fn protected(path: &str) -> TestRows {
    let made = ["a/b/c", "a/d", "e"].map(|path| object(path, Lies::Inline));
    after(&[&made[..], &[Op::Protect { at: here(path), on: true }]].concat())
}

fn member(memory: &mut TestRows, path: &str) -> Member {
    at(memory, path).unwrap_or(Member::Group(ROOT))
}

fn gid(memory: &mut TestRows, path: &str) -> Gid {
    member(memory, path).id()
}

#[test]
fn a_group_that_is_read_only_holds_what_is_below_it_and_nothing_else() {
    let mut memory = protected("a");
    for (path, held) in [("a", true), ("a/b", true), ("a/b/c", true), ("a/d", true), ("e", false)] {
        let member = member(&mut memory, path);
        assert_eq!(holds(&mut memory, member), Ok(held), "{path}");
        assert_eq!(refuse(&mut memory, member).is_err(), held, "{path}");
    }
    assert_eq!(holds(&mut memory, Member::Group(ROOT)), Ok(false));
    let inner = gid(&mut memory, "a/b");
    let refused = refuse_new(&mut memory, inner, "new").unwrap_err();
    assert_eq!(refused.kind(), Kind::ReadOnly);
    for part in ["\"new\" cannot be made", "group \"a\"", "engram protect POOL a --off"] {
        assert!(refused.message().contains(part), "{refused}");
    }
    assert_eq!(refuse_new(&mut memory, ROOT, "new"), Ok(()));
}

#[test]
fn a_group_with_something_read_only_below_it_is_not_deleted() {
    let mut memory = protected("a/b/c");
    for (path, refused) in [("a", true), ("a/b", true), ("a/b/c", true), ("a/d", false)] {
        let member = member(&mut memory, path);
        let done = refuse_deletion(&mut memory, member).map_err(|error| error.kind());
        assert_eq!(done, if refused { Err(Kind::ReadOnly) } else { Ok(()) }, "{path}");
    }
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let parent = gid(&mut memory, "a");
    let mut all = |of: &[&str]| refuse_deletions(&mut memory, parent, ROOT, &names(of));
    assert_eq!(all(&["d", "not there"]), Ok(()));
    assert_eq!(all(&["d", "b"]).unwrap_err().kind(), Kind::ReadOnly);
}

#[test]
fn what_a_group_above_says_only_that_takes_back() {
    let mut memory = protected("a");
    let [above, below] = ["a", "a/b/c"].map(|path| member(&mut memory, path));
    let before = memory.clone();
    for on in [true, false] {
        assert_eq!(set(&mut memory, below, on, stamp(9)).unwrap_err().kind(), Kind::ReadOnly);
    }
    set(&mut memory, above, true, stamp(9)).unwrap();
    assert_eq!(memory, before, "what is so already is left as it is");
    set(&mut memory, above, false, stamp(9)).unwrap();
    assert_eq!(memory.rows.entries(Table::ReadOnly), 0);
    assert_eq!(holds(&mut memory, below), Ok(false));
    set(&mut memory, below, true, stamp(9)).unwrap();
    assert_eq!(holds(&mut memory, below), Ok(true));
}

#[test]
fn of_what_is_gone_it_is_said_so() {
    let mut memory = protected("e");
    assert_eq!(holds(&mut memory, Member::Object(99)).unwrap_err().kind(), Kind::NotFound);
    assert_eq!(refuse(&mut memory, Member::Object(99)), Ok(()), "that is for who changes it");
    let gone = set(&mut memory, Member::Group(99), true, stamp(9)).unwrap_err();
    assert_eq!(gone.kind(), Kind::NotFound);
}
