//! A real etcd as the coordinator: it answers as the machines take it.

mod own_etcd;

use std::time::{Duration, Instant};

use engram_cluster::driver::etcd::Etcd;
use engram_protocol::coordinator::{Change, Guard, Keys, Reply, Request, Transaction};
use own_etcd::OwnEtcd;

fn put(key: &str, value: &str, lease: Option<u64>) -> Change {
    Change::Put { key: key.to_owned(), value: value.as_bytes().to_vec(), lease }
}

fn revision_of(reply: &Reply) -> u64 {
    match reply {
        Reply::Committed { done: true, revision, .. } => *revision,
        other => panic!("{other:?}"),
    }
}

#[test]
fn rows_transactions_and_leases_are_as_the_machines_take_them() {
    let Some(own) = OwnEtcd::start() else { return };
    let etcd =
        Etcd::new(std::slice::from_ref(&own.endpoint), None, Duration::from_secs(3)).unwrap();
    assert!(etcd.check_version().unwrap().starts_with("3."));
    let keys = Keys::new("rows");
    let name = keys.name("run/T — ü");
    let unchanged = |modified| Guard::Unchanged { key: name.clone(), modified };
    let commit = |guards, changes| {
        let otherwise = vec![name.clone(), keys.epoch()];
        etcd.answer(&Request::Commit(Transaction { guards, changes, otherwise }))
    };
    let first = revision_of(&commit(vec![unchanged(0)], vec![put(&name, "one", None)]));
    // Once more: the guard does not hold, and the row is told.
    match commit(vec![unchanged(0)], vec![put(&name, "two", None)]) {
        Reply::Committed { done: false, revision, rows } => {
            assert_eq!((revision, rows.len()), (first, 1));
            assert_eq!((rows[0].key.as_str(), rows[0].modified), (name.as_str(), first));
            assert_eq!(rows[0].value, b"one");
        }
        other => panic!("{other:?}"),
    }
    let second = revision_of(&commit(vec![unchanged(first)], vec![put(&name, "", None)]));
    assert!(second > first);
    match etcd.answer(&Request::Get { keys: vec![name.clone(), keys.epoch()] }) {
        Reply::Rows { revision, rows } => {
            assert_eq!((revision, rows.len(), rows[0].value.len()), (second, 1, 0));
        }
        other => panic!("{other:?}"),
    }
    revision_of(&commit(Vec::new(), vec![Change::Delete { key: name.clone() }]));
    assert!(matches!(
        etcd.answer(&Request::Get { keys: vec![name.clone()] }),
        Reply::Rows { rows, .. } if rows.is_empty()
    ));

    // A thousand rows of a map, beside those of a neighbour.
    for block in 0..10 {
        let row = |n: u32| put(&keys.node(&format!("{:04}", block * 100 + n)), "x", None);
        revision_of(&commit(Vec::new(), (0..100).map(row).collect()));
    }
    let other = Keys::new("rows2").node("0000");
    revision_of(&commit(Vec::new(), vec![put(&other, "y", None)]));
    match etcd.answer(&Request::List { prefix: keys.map() }) {
        Reply::Rows { rows, .. } => assert_eq!(rows.len(), 1000),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_lease_ends_and_takes_its_rows_along() {
    let Some(own) = OwnEtcd::start() else { return };
    let etcd =
        Etcd::new(std::slice::from_ref(&own.endpoint), None, Duration::from_secs(3)).unwrap();
    let keys = Keys::new("leases");
    let ttl = Duration::from_secs(2);
    let Reply::Granted(lease) = etcd.answer(&Request::Grant { ttl }) else { panic!("no lease") };
    let member = keys.member(lease);
    let changes = vec![put(&member, "n", Some(lease))];
    let write = Request::Commit(Transaction { changes, ..Transaction::default() });
    revision_of(&etcd.answer(&write));
    assert!(matches!(etcd.answer(&Request::Renew { lease }), Reply::Renewed(Some(_))));
    let there = || match etcd.answer(&Request::Get { keys: vec![member.clone()] }) {
        Reply::Rows { rows, .. } => !rows.is_empty(),
        other => panic!("{other:?}"),
    };
    assert!(there());
    let begun = Instant::now();
    while there() {
        assert!(begun.elapsed() < Duration::from_secs(60), "the lease does not end");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(begun.elapsed() > ttl / 2, "it ended before its time");
    assert_eq!(etcd.answer(&Request::Renew { lease }), Reply::Renewed(None));
    // What belongs to a lease that has ended is refused, and not done.
    match etcd.answer(&write) {
        Reply::Refused(why) => assert!(why.contains("lease"), "{why}"),
        other => panic!("{other:?}"),
    }
    let Reply::Granted(lease) = etcd.answer(&Request::Grant { ttl }) else { panic!("no lease") };
    assert_eq!(etcd.answer(&Request::Revoke { lease }), Reply::Revoked);
    assert_eq!(etcd.answer(&Request::Revoke { lease }), Reply::Revoked);
}

#[test]
fn an_etcd_that_is_away_is_neither_yes_nor_no() {
    let Some(mut own) = OwnEtcd::start() else { return };
    let nobody = own_etcd::free_port();
    let endpoints = [format!("http://{nobody}/"), own.endpoint.clone()];
    let etcd = Etcd::new(&endpoints, None, Duration::from_secs(2)).unwrap();
    let keys = Keys::new("away");
    let get = Request::Get { keys: vec![keys.epoch()] };
    // The first does not answer, the second does.
    assert!(matches!(etcd.answer(&get), Reply::Rows { .. }));
    own.kill();
    assert_eq!(etcd.answer(&get), Reply::Unreachable);
    let write = Transaction { changes: vec![put("x", "y", None)], ..Transaction::default() };
    assert_eq!(etcd.answer(&Request::Commit(write)), Reply::Unreachable);
    let why = etcd.check_version().unwrap_err().to_string();
    assert!(why.contains("no etcd answers at"), "{why}");
    assert!(Etcd::new(&[], None, Duration::from_secs(1)).is_err());
}
