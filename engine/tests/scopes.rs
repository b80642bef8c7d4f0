//! Scopes: who sees what of a namespace, and where it lies.

mod common;

use common::{Fixture, attach, filled, put, read, sound};
use engram_engine::{Kind, Mode, Pool, Scope};

#[test]
fn a_private_realm_is_made_at_its_first_use_and_found_again() {
    let fixture = Fixture::new(32 << 20);
    let namespace = fixture.pool.namespace("default").unwrap();
    assert_eq!(namespace.scopes().unwrap(), [Scope::Shared]);
    assert!(namespace.realm_of(Scope::Private, false).unwrap().is_none());
    let other = attach(&fixture.path, Mode::ReadWrite).0.namespace("default").unwrap();
    let private = namespace.realm_of(Scope::Private, true).unwrap().unwrap();
    assert_eq!(private.scope(), Scope::Private);
    assert_eq!(private.root(), fixture.realm().root(), "the same GIDs everywhere");
    put(&private, "mine", &filled(1, 1, 50_000));
    assert_eq!(namespace.scopes().unwrap(), [Scope::Private, Scope::Shared]);
    drop(other);
    let (pool, _) = attach(&fixture.path, Mode::ReadWrite);
    let again = pool.namespace("default").unwrap();
    let found = again.realm_of(Scope::Private, false).unwrap().expect("it is there");
    assert_eq!(read(&found, "mine"), filled(1, 1, 50_000));
    drop((found, again));
    pool.close();
    let report = sound(&fixture.path);
    assert_eq!((report.namespaces, report.objects), (1, 1));
    drop((private, namespace));
    fixture.pool.close();
    Pool::destroy(&fixture.path).unwrap();
    assert!(!fixture.path.exists());
}

#[test]
fn who_may_not_write_makes_no_private_realm() {
    let fixture = Fixture::new(32 << 20);
    let pool = Pool::open(&fixture.path, Mode::Read, true).unwrap();
    let namespace = pool.namespace("default").unwrap();
    let refused = namespace.realm_of(Scope::Private, true).err().expect("a refusal");
    assert_eq!(refused.kind(), Kind::ReadOnly, "{refused}");
}
