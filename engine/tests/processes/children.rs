//! Children of children, and who ends first (protocol P4).

use crate::common::{
    Fixture, OVER, alone, attach, check, churn, filled, floats, fork, put, read, sound, view,
};
use engram::Mode;

const MIB: usize = 1 << 20;

/// The child in the middle forks before it has used the realm itself: what its own child holds,
/// and what that one looks up later, is seen by allocators all the same.
#[test]
fn the_child_of_a_child_keeps_its_views() {
    alone("the_child_of_a_child_keeps_its_views", || {
        let fixture = Fixture::new(16 << 20);
        let realm = fixture.realm();
        for name in ["inherited", "looked up"] {
            put(&realm, name, &filled(1, 1, MIB / 8));
        }
        let held = view(&realm, "inherited");
        churn(&realm, 1);
        let child = fork(|line| {
            line.expect(0);
            let grandchild = fork(|up| {
                up.say(0);
                up.expect(1);
                let found = view(&realm, "looked up");
                up.say(2);
                up.expect(3);
                assert_eq!(check(&held), (1, 1));
                assert_eq!(check(&found), (1, 1));
            });
            grandchild.line.expect(0);
            line.say(0);
            for (go, done) in [(1, Some(2)), (3, None)] {
                line.expect(go);
                grandchild.line.say(go);
                if let Some(done) = done {
                    grandchild.line.expect(done);
                    line.say(done);
                }
            }
            grandchild.finish();
        });
        // The allocator knows the child by now, and must come to know the grandchild.
        churn(&realm, 1);
        child.line.say(0);
        child.line.expect(0);
        churn(&realm, 1);
        child.line.say(1);
        child.line.expect(2);
        drop(held);
        for name in ["inherited", "looked up"] {
            realm.delete(realm.root(), name).unwrap();
        }
        churn(&realm, 2);
        child.line.say(3);
        child.finish();
        sound(&fixture.path);
    });
}

/// As above, but the view is inherited twice, and the one in the middle ends.
#[test]
fn a_grandchild_keeps_what_its_dead_parent_never_used() {
    alone("a_grandchild_keeps_what_its_dead_parent_never_used", || {
        let fixture = Fixture::new(16 << 20);
        let realm = fixture.realm();
        put(&realm, "x", &filled(1, 1, MIB / 8));
        let held = view(&realm, "x");
        churn(&realm, 1);
        // The grandchild talks to us through a line that was there before.
        let (ours, theirs) = crate::common::Line::pair();
        let child = fork(|line| {
            line.expect(1);
            let grandchild = fork(|_| {
                // SAFETY: asks for no signal: this one outlives its parent.
                unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, 0) };
                theirs.say(2);
                theirs.expect(3);
                assert_eq!(check(&held), (1, 1));
                theirs.say(4);
            });
            std::mem::forget(grandchild);
        });
        drop(theirs);
        churn(&realm, 1);
        child.line.say(1);
        ours.expect(2);
        child.finish();
        drop(held);
        realm.delete(realm.root(), "x").unwrap();
        churn(&realm, 2);
        ours.say(3);
        ours.expect(4);
    });
}

#[test]
fn a_child_that_ends_without_exec_leaves_nothing() {
    alone("a_child_that_ends_without_exec_leaves_nothing", || {
        let fixture = Fixture::new(16 << 20);
        let realm = fixture.realm();
        put(&realm, "x", &filled(1, 1, MIB / 8));
        let before = fixture.leases().len();
        let child = fork(|line| {
            let held = view(&realm, "x");
            let new = floats(&[MIB as u64 / 8]);
            let space = realm.allocate(realm.root(), "never", &new, MIB as u64, OVER).unwrap();
            let scratch = realm.scratch(MIB as u64, None).unwrap();
            line.say(1);
            std::mem::forget((held, space, scratch));
        });
        child.line.expect(1);
        child.finish();
        let space = realm.space().unwrap();
        assert_eq!(space.pids, [std::process::id()]);
        assert_eq!(fixture.leases().len(), before, "{:?}", fixture.leases());
        // All but "x" can be had again.
        let all = space.size - MIB as u64;
        drop(realm.scratch(all, None).unwrap());
        assert_eq!(sound(&fixture.path).used, MIB as u64);
    });
}

#[test]
fn a_child_goes_on_when_its_parent_dies_first() {
    alone("a_child_goes_on_when_its_parent_dies_first", || {
        let fixture = Fixture::new(16 << 20);
        let path = fixture.path.clone();
        let (ours, theirs) = crate::common::Line::pair();
        let parent = fork(|line| {
            let (_pool, realm) = attach(&path, Mode::ReadWrite);
            put(&realm, "x", &filled(1, 1, MIB / 8));
            let held = view(&realm, "x");
            let child = fork(|_| {
                // SAFETY: asks for no signal: this one outlives its parent.
                unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, 0) };
                theirs.say(1);
                theirs.expect(2);
                assert_eq!(check(&held), (1, 1));
                put(&realm, "from the child", &filled(2, 1, 5000));
                theirs.say(3);
                theirs.expect(4);
            });
            line.say(1);
            std::mem::forget(child);
            line.hear();
        });
        drop(theirs);
        parent.line.expect(1);
        ours.expect(1);
        parent.kill();
        let realm = fixture.realm();
        realm.delete(realm.root(), "x").unwrap();
        churn(&realm, 2);
        ours.say(2);
        ours.expect(3);
        assert_eq!(read(&realm, "from the child"), filled(2, 1, 5000));
        assert_eq!(realm.space().unwrap().pids.len(), 2);
        ours.say(4);
    });
}
