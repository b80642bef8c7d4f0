//! Rows of moves, and what they refuse.

use proptest::prelude::*;
use proptest::sample::select;

use super::{
    ARRIVED, Going, Receipt, Stage, Transfer, half_deleted, members_of, on_its_way, pass,
    refuse_leaving, unmark,
};
use crate::rows_mut::RowsMut;
use crate::testing::TestRows;
use engram_base::error::Kind;
use engram_base::id::{Member, id_key};
use engram_base::scope::Scope;
use engram_catalog::meta::meta_u64;
use engram_catalog::rows::Rows;
use engram_catalog::testing::MemoryRows;
use engram_catalog::{Catalog, Headroom, Options, Table};

const STAGES: [Stage; 4] = [Stage::Leaving, Stage::Gone, Stage::Arrived, Stage::Ending];

fn transfer() -> impl Strategy<Value = Transfer> {
    let scope = select(Scope::ALL.to_vec());
    let words = (any::<u32>(), any::<u32>(), any::<u64>());
    (any::<u64>(), select(STAGES.to_vec()), scope, words).prop_map(
        |(number, stage, other, (uid, pid, lease))| Transfer {
            number,
            stage,
            other,
            uid,
            pid,
            lease,
        },
    )
}

fn going() -> impl Strategy<Value = Going> {
    (any::<u64>(), 0..3u8, any::<u32>()).prop_map(|(id, kind, depth)| Going {
        member: if kind == 0 { Member::Object(id) } else { Member::Group(id) },
        mirror: kind == 2,
        depth,
    })
}

proptest! {
    #[test]
    fn marks_are_read_as_they_were_written_and_other_bytes_are_refused(
        transfer in transfer(), going in going(), uid in any::<u32>(),
        noise in prop::collection::vec(any::<u8>(), 0..40), at in 0usize..32, byte in any::<u8>(),
    ) {
        let key = id_key(transfer.number);
        prop_assert_eq!(Transfer::parse(&key, &transfer.to_row()), Ok(transfer));
        let row = going.to_row(transfer.number);
        let id = id_key(going.member.id());
        prop_assert_eq!(Going::parse(&id, &row), Ok((transfer.number, going)));
        let receipt = Receipt { scope: transfer.other, uid };
        prop_assert_eq!(Receipt::parse(&receipt.to_row()), Ok(receipt));

        let corrupt = |error: engram_base::error::Error| error.kind() == Kind::Corrupt;
        if noise.len() != 32 {
            prop_assert!(Transfer::parse(&key, &noise).is_err_and(corrupt));
        }
        if noise.len() != 16 {
            prop_assert!(Going::parse(&id, &noise).is_err_and(corrupt));
        }
        if noise.len() != 8 {
            prop_assert!(Receipt::parse(&noise).is_err_and(corrupt));
        }
        prop_assert!(Transfer::parse(&key[1..], &transfer.to_row()).is_err_and(corrupt));
        prop_assert!(Going::parse(&key[1..], &row).is_err_and(corrupt));
        // A byte that says version, stage or scope is one of those that there are, or refused.
        let mut damaged = transfer.to_row();
        damaged[at] = byte;
        match Transfer::parse(&key, &damaged) {
            Ok(read) => prop_assert!(at > 2 || read.to_row() == damaged),
            Err(error) => prop_assert!(at <= 2 && corrupt(error)),
        }
    }
}

/// A move of this stage, from or to the published realm, with one object of id 9 on its way.
fn with_move(stage: Stage, mirror: bool) -> TestRows {
    let mut memory = TestRows::default();
    let other = Scope::Published;
    Transfer { number: 3, stage, other, uid: 0, pid: 4711, lease: 1 }.put(&mut memory).unwrap();
    let member = if mirror { Member::Group(9) } else { Member::Object(9) };
    Going { member, mirror, depth: 0 }.mark(&mut memory, 3).unwrap();
    memory
}

#[test]
fn a_member_on_its_way_is_neither_changed_nor_marked_again_until_its_marks_are_gone() {
    for stage in STAGES {
        let mut memory = with_move(stage, false);
        let refused = refuse_leaving(&mut memory, 9).unwrap_err();
        assert_eq!(refused.kind(), Kind::Busy);
        let told = if stage == Stage::Ending { "deleted" } else { "published" };
        assert!(
            refused.message().contains(told) && refused.message().contains("4711"),
            "{refused}"
        );
        assert_eq!(on_its_way(&mut memory, 9), Ok(Some(refused)));
        let before = memory.clone();
        let again = Going { member: Member::Object(9), mirror: false, depth: 0 };
        assert_eq!(again.mark(&mut memory, 5).unwrap_err().kind(), Kind::Busy);
        assert_eq!(memory, before);

        assert_eq!(refuse_leaving(&mut memory, 10), Ok(()));
        let members = members_of(&mut memory, 3).unwrap();
        unmark(&mut memory, &members).unwrap();
        assert_eq!(
            (refuse_leaving(&mut memory, 9), on_its_way(&mut memory, 9)),
            (Ok(()), Ok(None))
        );
    }
}

#[test]
fn a_mirror_is_no_member_that_somebody_would_lock() {
    let mut memory = with_move(Stage::Leaving, true);
    assert_eq!(on_its_way(&mut memory, 9), Ok(None));
    assert_eq!(refuse_leaving(&mut memory, 9).unwrap_err().kind(), Kind::Busy);
}

#[test]
fn a_mark_without_its_move_is_damage() {
    let mut memory = with_move(Stage::Leaving, false);
    memory.remove(Table::Transfers, &id_key(3)).unwrap();
    assert_eq!(refuse_leaving(&mut memory, 9).unwrap_err().kind(), Kind::Corrupt);
    assert_eq!(on_its_way(&mut memory, 9).unwrap_err().kind(), Kind::Corrupt);
}

#[test]
fn members_of_a_move_come_with_those_that_lie_deepest_last_and_no_others_come() {
    let mut memory = TestRows::default();
    for (id, number, depth) in [(1, 3, 2), (2, 3, 0), (3, 4, 0), (4, 3, 1)] {
        Going { member: Member::Group(id), mirror: false, depth }
            .mark(&mut memory, number)
            .unwrap();
    }
    let members = members_of(&mut memory, 3).unwrap();
    let ids: Vec<u64> = members.iter().map(|going| going.member.id()).collect();
    assert_eq!(ids, [2, 4, 1]);
}

#[test]
fn a_receipt_counts_as_an_arrival_and_is_forgotten_once() {
    let mut memory = TestRows::default();
    let arrived = |memory: &mut TestRows| {
        meta_u64(memory.get(Table::Meta, ARRIVED).unwrap().as_deref()).unwrap()
    };
    let receipt = Receipt { scope: Scope::Private, uid: 1000 };
    receipt.put(&mut memory, 3).unwrap();
    assert_eq!(arrived(&mut memory), 1);
    pass(&mut memory).unwrap();
    assert_eq!(arrived(&mut memory), 2);
    for _ in 0..2 {
        Receipt::remove(&mut memory, 3).unwrap();
        assert_eq!(memory.rows.entries(Table::Received), 0);
    }
    assert_eq!(arrived(&mut memory), 2);
}

/// A catalog of these rows.
fn catalog(rows: &MemoryRows) -> (tempfile::TempDir, Catalog) {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { map_size: 1 << 30, ..Options::default() };
    Catalog::create(dir.path(), &options).unwrap();
    let catalog = Catalog::open(dir.path(), &options).unwrap();
    let mut txn = catalog.write(Headroom::Normal).unwrap();
    rows.write_to(&mut txn).unwrap();
    txn.commit().unwrap();
    (dir, catalog)
}

#[test]
fn a_deletion_is_half_done_where_one_realm_has_the_mark_and_the_other_the_receipt() {
    let mut shared = TestRows::default();
    let other = Scope::Private;
    let ending = Transfer { number: 3, stage: Stage::Ending, other, uid: 1000, pid: 1, lease: 1 };
    ending.put(&mut shared).unwrap();
    let mut private = TestRows::default();
    Receipt { scope: Scope::Shared, uid: 0 }.put(&mut private, 3).unwrap();
    let mut leaving = TestRows::default();
    Transfer { stage: Stage::Leaving, ..ending }.put(&mut leaving).unwrap();

    let none = MemoryRows::default();
    for (one, two, half) in [
        (&shared.rows, &private.rows, Some(3)),
        (&shared.rows, &none, None),
        (&none, &private.rows, None),
        (&leaving.rows, &private.rows, None),
    ] {
        let ((_one, one), (_two, two)) = (catalog(one), catalog(two));
        let txns = [one.read().unwrap(), two.read().unwrap()];
        assert_eq!(half_deleted(&[Scope::Shared, Scope::Private], &txns), Ok(half));
        assert_eq!(half_deleted(&[Scope::Shared, Scope::Published], &txns), Ok(None));
    }
    let (_dir, both) = catalog(&shared.rows);
    assert_eq!(Transfer::all(&both.read().unwrap()), Ok(vec![ending]));
    let (_dir, received) = catalog(&private.rows);
    let receipts = Receipt::all(&received.read().unwrap()).unwrap();
    assert_eq!(receipts, [(3, Receipt { scope: Scope::Shared, uid: 0 })]);
}
