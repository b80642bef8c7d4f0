//! Verify, of several realms: what is in two of them for itself is found, and what moves is not
//! taken for that.
#![cfg(feature = "faults")]

use std::path::{Path, PathBuf};

use crate::common::moves::{begin, die_at, names, play, toys};
use crate::common::{Fixture, Random, alone, attach, fork, report_of, seed, sound};
use engram::catalog::{Catalog, Headroom, Options, Table};
use engram::{Mode, Scope};

use Scope::{Private, Published, Shared};

/// The folder of the catalog of a scope that can be written.
fn catalog_of(path: &Path, scope: Scope) -> PathBuf {
    use std::os::unix::fs::MetadataExt;
    let namespace = path.join("ns/default");
    let realm = match scope {
        Private => format!("private/{}", path.metadata().expect("the pool's folder").uid()),
        scope => scope.as_str().to_owned(),
    };
    namespace.join(realm).join("catalog")
}

/// Takes every row of these tables away.
fn clear(path: &Path, scope: Scope, tables: &[Table]) {
    let catalog = Catalog::open(&catalog_of(path, scope), &Options::default()).expect("it opens");
    let mut txn = catalog.write(Headroom::Relief).expect("a transaction");
    for table in tables {
        let mut keys = Vec::new();
        let mut rows = txn.seek(*table, &[]).expect("rows");
        while let Some((key, _)) = rows.next().expect("a row") {
            keys.push(key.to_vec());
        }
        drop(rows);
        for key in keys {
            txn.delete(*table, &key).expect("a row less");
        }
    }
    txn.commit().expect("a commit");
}

/// Sets a row.
fn put(path: &Path, scope: Scope, table: Table, key: &[u8], row: &[u8]) {
    let catalog = Catalog::open(&catalog_of(path, scope), &Options::default()).expect("it opens");
    let mut txn = catalog.write(Headroom::Relief).expect("a transaction");
    txn.put(table, key, row).expect("a row more");
    txn.commit().expect("a commit");
}

/// A move that has half come, with its marks, and without them.
#[test]
fn what_is_in_two_scopes_and_not_on_its_way_is_found() {
    alone("what_is_in_two_scopes_and_not_on_its_way_is_found", || {
        for (from, to, step) in [
            (Shared, Private, "transfer.arrived"),
            (Private, Shared, "transfer.arrived"),
            (Shared, Published, "publish.arrived"),
            (Private, Published, "publish.arrived"),
        ] {
            let fixture = Fixture::new(64 << 20);
            let path = &fixture.path;
            fixture.pool.close();
            begin(path, from);
            assert!(die_at(path, from, to, step), "{step} was not reached");
            // It is in both, and says why.
            sound(path);
            clear(path, from, &[Table::Leaving, Table::Transfers]);
            if to != Published {
                clear(path, to, &[Table::Received]);
            }
            let problems = report_of(path).problems;
            let two = |what: &&String| what.contains("is in two scopes, ");
            assert_eq!(problems.iter().filter(two).count(), 3, "{from:?} {to:?}: {problems:#?}");
            assert_eq!(problems.len(), 3, "{problems:#?}");
            for what in ["\"run/deep/huge\"", from.as_str(), to.as_str()] {
                assert!(problems.iter().any(|problem| problem.contains(what)), "{problems:#?}");
            }
        }
    });
}

/// Whatever a living process moves meanwhile.
#[test]
fn what_moves_is_not_taken_for_being_in_two_scopes() {
    alone("what_moves_is_not_taken_for_being_in_two_scopes", || {
        let fixture = Fixture::new(64 << 20);
        let path = &fixture.path;
        toys(&fixture.pool);
        fixture.pool.close();
        let mut random = Random(seed());
        let movers = [(); 2].map(|()| {
            let seed = random.next();
            let mover = fork(|line| play(path, line, Random(seed)));
            mover.line.expect(0);
            mover
        });
        // Open as well: then it is not opened and closed for each look.
        let (pool, _) = attach(path, Mode::Read);
        for round in 0..60 {
            if round == 30 {
                pool.close();
            }
            sound(path);
        }
        for mover in movers {
            mover.line.say(0);
            mover.finish();
        }
        sound(path);
    });
}

/// Mirrors are listed: one that is not, and one that is none.
#[test]
fn a_list_of_mirrors_that_is_wrong_is_found() {
    let fixture = Fixture::new(64 << 20);
    let path = &fixture.path;
    let namespace = names(&fixture.pool);
    let (root, scope) = (namespace.root(), Some(Private));
    let gid = namespace.create_group(root, "g", &[], b"", false, None).expect("a group");
    namespace.create_group(root, "g/mine", &[], b"", false, scope).expect("a group");
    drop(namespace);
    fixture.pool.close();
    sound(path);
    clear(path, Private, &[Table::Mirrors]);
    let row = [&b"G"[..], &gid.to_le_bytes()].concat();
    put(path, Shared, Table::Mirrors, &gid.to_be_bytes(), &row);
    let problems = report_of(path).problems;
    assert_eq!(problems.len(), 2, "{problems:#?}");
    for what in ["is a mirror, and is not listed so", "is listed as a mirror, and is none"] {
        assert!(problems.iter().any(|problem| problem.contains(what)), "{problems:#?}");
    }
}
