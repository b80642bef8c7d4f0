//! A full pool: what is sealed can be deleted there, though that takes rows of its own, and what is
//! left over of the index's work is done once there is room.

use crate::common::{Fixture, KEEP, alone, fill_up, floats, fork, small_tmpfs, sound};
use engram::query::parse;
use engram::{
    DType, IndexMode, IndexSettings, Kind, MaintenanceTask, NewObject, Placement, QueryOptions,
    Realm, Value,
};

fn put(realm: &Realm, name: &str, at: i64) -> engram::Result<()> {
    put_as(realm, name, at, 1, None)
}

fn put_as(
    realm: &Realm,
    name: &str,
    at: i64,
    words: usize,
    index: Option<IndexMode>,
) -> engram::Result<()> {
    let value = |data: i64| Value {
        dtype: DType::scalar(b'i', b'<', 8),
        shape: Vec::new(),
        data: data.to_le_bytes().to_vec(),
    };
    let attrs = vec![("few".into(), value(at % 7)), ("unique".into(), value(at * 7919))];
    let new = NewObject { attrs, ..floats(&[words as u64]) };
    let data = vec![7; 8 * words];
    realm.put(realm.root(), name, &new, &data, Placement { index, ..KEEP }).map(drop)
}

fn count(realm: &Realm, text: &str) -> u64 {
    let query = parse(text).unwrap();
    let brute_force = QueryOptions { brute_force: true, ..QueryOptions::default() };
    let plain = realm.query_count(&query, &brute_force).unwrap();
    assert_eq!(realm.query_count(&query, &QueryOptions::default()).unwrap(), plain, "{text}");
    plain
}

#[test]
fn sealed_objects_can_be_deleted_from_a_full_pool() {
    let test = "sealed_objects_can_be_deleted_from_a_full_pool";
    alone(test, || {
        let Some((fixture, mount)) = Fixture::on_small_mount(test, 48 << 20) else { return };
        let realm = fixture.realm();
        let root = realm.root();
        // Small segments: each has a row of dead positions of its own.
        let settings = IndexSettings {
            segment_rows: Some(32),
            tail_rows: Some(32),
            ..IndexSettings::default()
        };
        realm.set_index_settings(root, &settings).unwrap();
        let mut objects = 0;
        while objects < 4000 {
            put(&realm, &format!("o{objects}"), objects).unwrap();
            objects += 1;
        }
        realm.maintain().unwrap();
        let filler = fill_up(&mount);
        // Until the catalog's own pages are used up; not even the index's work can be done then.
        let refused = loop {
            match put(&realm, &format!("o{objects}"), objects) {
                Ok(()) => objects += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(refused.kind(), Kind::PoolFull, "{refused}");
        let stats = realm.index_stats().unwrap();
        // A segment that is written anew in parts may have come half way.
        assert!(stats.sealed >= 4000 && stats.dead < 32, "{stats:?}");
        // One of each segment in turn, so that every row of dead positions is made anew.
        let mut left: Vec<i64> = (0..objects).collect();
        left.sort_by_key(|index| (index % 32, *index));
        for index in left.split_off(left.len() / 2) {
            realm.delete(root, &format!("o{index}")).unwrap();
        }
        assert_eq!(count(&realm, "exists(few)"), left.len() as u64);
        sound(&fixture.path);
        // Some at once: a batch of a few rows needs no more than what is kept back for deletions.
        for some in left.split_off(left.len() / 2).chunks(8) {
            realm.begin_batch().unwrap();
            for index in some {
                realm.delete(root, &format!("o{index}")).unwrap();
            }
            realm.commit_batch().unwrap();
        }
        assert_eq!(count(&realm, "few = 3 or unique > 0 or few = 0"), left.len() as u64);
        sound(&fixture.path);
        // With room again, maintenance catches up.
        std::fs::remove_file(filler).unwrap();
        realm.maintain().unwrap();
        let stats = realm.index_stats().unwrap();
        assert_eq!(stats.tail + stats.sealed - stats.dead, left.len() as u64);
        assert!(stats.dead * 2 <= stats.sealed, "{stats:?}");
        put(&realm, "again", 1).unwrap();
        sound(&fixture.path);
    });
}

/// Whatever room a full mount has left: sealing, splitting and draining are done or refused, never
/// half done, and are done once there is room.
#[test]
fn the_index_is_sealed_split_and_drained_as_far_as_there_is_room() {
    let test = "the_index_is_sealed_split_and_drained_as_far_as_there_is_room";
    alone(test, || {
        let Some(dir) = small_tmpfs(test, 32 << 20) else { return };
        let (mut refused, mut done) = (0, 0);
        for left in [0, 64 << 10, 512 << 10, 2 << 20] {
            let inner = tempfile::tempdir_in(dir.path()).unwrap();
            let fixture = Fixture::within(inner, 1 << 30);
            let realm = fixture.realm();
            let settings = IndexSettings {
                segment_rows: Some(64),
                tail_rows: Some(100_000),
                ..IndexSettings::default()
            };
            realm.set_index_settings(realm.root(), &settings).unwrap();
            for at in 0..1500 {
                let mode = if at % 2 == 0 { IndexMode::Async } else { IndexMode::Sync };
                put_as(&realm, &format!("o{at}"), at, 1, Some(mode)).unwrap();
            }
            let filler = fill_up(dir.path());
            let full = std::fs::metadata(&filler).unwrap().len();
            let file = std::fs::File::options().write(true).open(&filler).unwrap();
            file.set_len(full.saturating_sub(left)).unwrap();
            drop(file);
            let mut objects = 1500;
            while objects < 30_000 {
                let index = Some(IndexMode::Async);
                match put_as(&realm, &format!("o{objects}"), objects, 120, index) {
                    Ok(()) => objects += 1,
                    Err(error) => {
                        assert_eq!(error.kind(), Kind::PoolFull, "{error}");
                        break;
                    }
                }
            }
            // Now the tail is long by a hundred times, and the queue full: all work is due.
            let settings = IndexSettings { tail_rows: Some(16), ..settings };
            let works: [&dyn Fn() -> engram::Result<u64>; 4] = [
                &|| realm.set_index_settings(realm.root(), &settings).map(|()| 0),
                &|| realm.drain_queue(9),
                &|| realm.drain_queue(u64::MAX),
                &|| realm.maintain(),
            ];
            for work in works {
                match work() {
                    Ok(_) => done += 1,
                    Err(error) => {
                        assert_eq!(error.kind(), Kind::PoolFull, "{error}");
                        refused += 1;
                    }
                }
                assert_eq!(count(&realm, "unique >= 0"), objects as u64);
                assert_eq!(count(&realm, "few = 3"), (objects as u64 + 3) / 7);
            }
            sound(&fixture.path);
            std::fs::remove_file(filler).unwrap();
            realm.set_index_settings(realm.root(), &settings).unwrap();
            realm.drain_queue(u64::MAX).unwrap();
            realm.maintain().unwrap();
            let stats = realm.index_stats().unwrap();
            assert_eq!((stats.queued, stats.tail + stats.sealed), (0, objects as u64), "{stats:?}");
            assert_eq!(count(&realm, "few = 3"), (objects as u64 + 3) / 7);
            sound(&fixture.path);
        }
        println!("{refused} refused, {done} done");
        assert!(refused > 0 && done > 0);
    });
}

#[test]
fn a_batch_of_many_times_a_segment_leaves_no_tail() {
    let fixture = Fixture::new(64 << 20);
    let realm = fixture.realm();
    let settings =
        IndexSettings { segment_rows: Some(16), tail_rows: Some(16), ..IndexSettings::default() };
    realm.set_index_settings(realm.root(), &settings).unwrap();
    // Whatever number of sealings went before it.
    for round in 0..5 {
        for at in 0..17 {
            put(&realm, &format!("single/{round}/{at}"), at).unwrap();
        }
        realm.begin_batch().unwrap();
        for at in 0..1000 {
            put(&realm, &format!("batch/{round}/{at}"), at).unwrap();
        }
        realm.commit_batch().unwrap();
        assert!(realm.index_stats().unwrap().tail < 16, "round {round}");
    }
    sound(&fixture.path);
}

/// Nobody is told by an error that sealing has failed; so every process can ask, and the one in
/// which it failed says so once.
#[test]
fn maintenance_that_fails_on_a_full_mount_is_told_until_it_is_done() {
    let test = "maintenance_that_fails_on_a_full_mount_is_told_until_it_is_done";
    alone(test, || {
        let Some((fixture, mount)) = Fixture::on_small_mount(test, 24 << 20) else { return };
        let realm = fixture.realm();
        let settings = IndexSettings { tail_rows: Some(16), ..IndexSettings::default() };
        realm.set_index_settings(realm.root(), &settings).unwrap();
        (0..500).for_each(|at| put(&realm, &format!("o{at}"), at).unwrap());
        assert_eq!(realm.holders().unwrap().maintenance, None);
        let filler = fill_up(&mount);
        let refused = (500..).find_map(|at| put(&realm, &format!("o{at}"), at).err()).unwrap();
        assert_eq!(refused.kind(), Kind::PoolFull, "{refused}");
        let failed = realm.holders().unwrap().maintenance.unwrap();
        assert_eq!(failed.pid, std::process::id());
        assert_eq!((failed.kind, failed.task), (Kind::PoolFull, MaintenanceTask::Arrange));
        assert!(failed.message.is_some_and(|message| message.contains("room")));
        let told = realm.take_notices();
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains("sealing the index failed"), "{told:?}");
        // Another process knows all but the message.
        fork(|_| {
            let elsewhere = realm.holders().unwrap().maintenance.unwrap();
            assert_eq!((elsewhere.kind, elsewhere.pid), (failed.kind, failed.pid));
            assert_eq!((elsewhere.at, elsewhere.message), (failed.at, None));
        })
        .finish();
        std::fs::remove_file(filler).unwrap();
        realm.maintain().unwrap();
        assert_eq!(realm.holders().unwrap().maintenance, None);
        assert!(realm.take_notices().is_empty());
        sound(&fixture.path);
    });
}
