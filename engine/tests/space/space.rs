//! Space under fire: a pool without room, and a mount without room, in the middle of everything.
//!
//! Each round takes away all but so many bytes, lets operations run until one is refused, and asks:
//! is the refusal `PoolFull`, is all that was there before there with its contents, do deletions
//! work (from here, from another process, beside an old view), does work go on after them, is every
//! byte accounted for? A SIGBUS anywhere would end the test's process.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::common::{
    Fixture, KEEP, OVER, Random, alone, attach, check, filled, floats, fork, lookup, map_of, put,
    seed, sound, view,
};
use engram::{DType, Error, IndexSettings, Kind, Member, Mode, NewObject, Realm, Result, Value};

/// What is there: path to tag, version and words.
type There = BTreeMap<String, (u64, u64, usize)>;

/// Objects with attributes of which some repeat and some do not, so that the index splits, merges
/// and keeps runs.
fn object(words: usize, at: u64) -> NewObject {
    let value = |data: u64| Value {
        dtype: DType::scalar(b'i', b'<', 8),
        shape: Vec::new(),
        data: data.to_le_bytes().to_vec(),
    };
    let attrs = vec![("few".into(), value(at % 5)), ("unique".into(), value(at * 7919))];
    NewObject { attrs, ..floats(&[words as u64]) }
}

/// Takes what is free on the mount, but for so many bytes.
struct Filler(PathBuf);

impl Filler {
    fn leave(mount: &Path, bytes: u64) -> Self {
        let path = mount.join("filler");
        let mut file = File::create(&path).expect("a filler");
        let free = fs_free(mount).saturating_sub(bytes);
        for step in [1 << 20, 1 << 12] {
            let block = vec![0xff; step];
            while file.metadata().unwrap().len() + step as u64 <= free
                && file.write_all(&block).is_ok()
            {}
        }
        Filler(path)
    }
}

impl Drop for Filler {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn fs_free(path: &Path) -> u64 {
    let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: a string that ends in NUL, and a place for the answer, for which zeros are valid.
    let about = unsafe {
        let mut about: libc::statvfs = std::mem::zeroed();
        assert_eq!(libc::statvfs(name.as_ptr(), &raw mut about), 0);
        about
    };
    about.f_bavail * about.f_frsize
}

/// One operation of a random mix, which may be refused for want of room and for nothing else.
/// Adds to `there` what it did.
fn one(realm: &Realm, random: &mut Random, there: &mut There) -> Result<()> {
    let root = realm.root();
    let tag = random.below(1 << 30);
    let words = match random.below(4) {
        0 => 16,
        1 => 400,
        2 => 3000,
        _ => 40_000,
    };
    let name = format!("g{}/o{}", random.below(3), random.below(1 << 20));
    let some = there.keys().nth(random.below(there.len().max(1) as u64) as usize).cloned();
    match (random.below(8), some) {
        (0, Some(old)) => {
            // Replaces what is there.
            realm.put(root, &old, &object(words, tag), &filled(tag, 2, words), OVER)?;
            there.insert(old, (tag, 2, words));
        }
        (1, _) => {
            let words = words.max(400); // what is allocated lies in an extent
            let new = object(words, tag);
            let space = realm.allocate(root, &name, &new, words as u64 * 8, OVER)?;
            space.write(&filled(tag, 1, words));
            space.publish()?;
            there.insert(name, (tag, 1, words));
        }
        (2, _) => {
            // A group, of a name that no object gets.
            let name = name.replace("/o", "/batch");
            realm.begin_batch()?;
            let mut added = There::new();
            let put = (0..30).try_for_each(|place| {
                let (name, words) = (format!("{name}/b{place}"), 20 + 100 * place as usize);
                realm.put(root, &name, &object(words, place), &filled(tag, place, words), OVER)?;
                added.insert(name, (tag, place, words));
                Ok(())
            });
            match put {
                Ok(()) => realm.commit_batch()?,
                Err(error) => {
                    realm.abort_batch()?;
                    return Err(error);
                }
            }
            there.extend(added);
        }
        (3, Some(old)) => {
            let new = format!("moved/{}", random.below(1 << 20));
            if !there.contains_key(&new) {
                realm.rename(root, &old, root, &new)?;
                let moved = there.remove(&old).unwrap();
                there.insert(new, moved);
            }
        }
        (4, Some(old)) => {
            let member = realm.lookup(root, &old)?.expect("it is there");
            realm.set_attrs(member, &[(format!("k{}", tag % 9), Value::text(&"v".repeat(200)))])?;
        }
        (5, _) => drop(realm.scratch(words as u64 * 8, None)?),
        (6, _) => {
            realm.maintain()?;
        }
        _ => {
            if realm.lookup(root, &name)?.is_none() {
                realm.put(root, &name, &object(words, tag), &filled(tag, 1, words), KEEP)?;
                there.insert(name, (tag, 1, words));
            }
        }
    }
    Ok(())
}

fn refused(error: &Error) {
    assert_eq!(error.kind(), Kind::PoolFull, "{error}");
    assert!(!error.message().is_empty());
}

/// Everything that was acknowledged is there, and nothing else.
fn all_there(realm: &Realm, there: &There) {
    let found = map_of(realm, "");
    let objects: Vec<_> = found.iter().filter(|(_, bytes)| bytes.is_some()).collect();
    assert_eq!(objects.len(), there.len());
    for (path, bytes) in objects {
        let (tag, version, words) = there[path];
        assert!(bytes.as_ref().unwrap() == &filled(tag, version, words), "{path}");
    }
}

/// Deletes some here, some in another process with the pool open anew, beside a view of one of
/// them; then work goes on.
fn recover(fixture: &Fixture, realm: &Realm, random: &mut Random, there: &mut There) {
    let root = realm.root();
    let viewed = there.iter().find(|(_, (.., words))| *words >= 3000).map(|(path, _)| path.clone());
    let view = viewed.as_deref().map(|path| (crate::common::view(realm, path), there[path]));
    let mut names: Vec<String> = there.keys().cloned().collect();
    names.sort_by_cached_key(|name| (viewed.as_ref() != Some(name), random.below(1 << 20)));
    let gone: Vec<String> = names.into_iter().take(there.len() / 2 + 1).collect();
    for name in gone.iter().step_by(2) {
        realm.delete(root, name).expect("deleting from a full pool");
    }
    fork(|_| {
        fixture.pool.close();
        let (_pool, realm) = attach(&fixture.path, Mode::ReadWrite);
        for name in gone.iter().skip(1).step_by(2) {
            realm.delete(realm.root(), name).expect("deleting from a full pool, elsewhere");
        }
    })
    .finish();
    for name in &gone {
        let _ = there.remove(name);
    }
    all_there(realm, there);
    if let Some((view, (tag, version, _))) = view {
        assert_eq!(check(&view), (tag, version), "a view lives through it");
    }
    // Room again: for values and for rows.
    for place in 0..3 {
        let name = format!("again/{place}");
        realm.put(root, &name, &object(400, place), &filled(place, 5, 400), OVER).unwrap();
        there.insert(name, (place, 5, 400));
    }
    let used: u64 = there.values().map(|(.., words)| extent_bytes(*words as u64 * 8)).sum();
    assert_eq!(realm.space().unwrap().used, used, "the account is exact");
}

fn extent_bytes(nbytes: u64) -> u64 {
    match nbytes {
        0..=1024 => 0,
        1025..0x1_0000 => nbytes.div_ceil(64) * 64,
        _ => nbytes.div_ceil(4096) * 4096,
    }
}

fn settings(realm: &Realm) {
    let settings = IndexSettings {
        segment_rows: Some(64),
        tail_rows: Some(32),
        split_threshold: Some(50),
        ..IndexSettings::default()
    };
    realm.set_index_settings(realm.root(), &settings).unwrap();
}

/// Runs the mix until so many operations were refused; how many were done.
fn until_full(realm: &Realm, random: &mut Random, there: &mut There, refusals: u32) -> u32 {
    let (mut done, mut left) = (0, refusals);
    while left > 0 && done < 4000 {
        match one(realm, random, there) {
            Ok(()) => done += 1,
            Err(error) => {
                refused(&error);
                left -= 1;
            }
        }
    }
    assert_eq!(left, 0, "the pool was not filled");
    done
}

/// The pool's own bound, at many sizes.
#[test]
fn a_pool_at_its_capacity_refuses_and_recovers_at_every_size() {
    alone("a_pool_at_its_capacity_refuses_and_recovers_at_every_size", || {
        let mut random = Random(seed());
        let levels = levels(6);
        for level in 0..levels {
            let fixture = Fixture::new((2 + level % 4 * 2) << 20);
            let realm = fixture.realm();
            settings(&realm);
            let mut there = There::new();
            // Small objects need the catalog alone, which has no such bound: they go on.
            for _ in 0..3 {
                until_full(&realm, &mut random, &mut there, 8);
                all_there(&realm, &there);
                recover(&fixture, &realm, &mut random, &mut there);
            }
            finish(&fixture, realm, &there);
        }
        println!("capacity: {levels} levels x 3 rounds x 8 refusals");
    });
}

/// The mount's end, with 64 KiB less room each time.
#[test]
fn a_full_mount_refuses_and_recovers_at_every_level() {
    let test = "a_full_mount_refuses_and_recovers_at_every_level";
    alone(test, || {
        let mut random = Random(seed());
        let levels = levels(12);
        let Some((fixture, mount)) = Fixture::on_small_mount(test, 96 << 20) else { return };
        let realm = fixture.realm();
        settings(&realm);
        let mut there = There::new();
        (0..100).for_each(|_| one(&realm, &mut random, &mut there).unwrap());
        for level in 0..levels {
            let filler = Filler::leave(&mount, level * (64 << 10));
            until_full(&realm, &mut random, &mut there, 5);
            all_there(&realm, &there);
            recover(&fixture, &realm, &mut random, &mut there);
            drop(filler);
            sound(&fixture.path);
        }
        finish(&fixture, realm, &there);
        println!("mount: {levels} levels of 64 KiB x 5 refusals");
    });
}

/// How many levels a test visits: `ENGRAM_SPACE_LEVELS`, or a few.
fn levels(few: u64) -> u64 {
    std::env::var("ENGRAM_SPACE_LEVELS").ok().and_then(|text| text.parse().ok()).unwrap_or(few)
}

/// All is there, all is sound; and when all is gone, all of it can be had.
fn finish(fixture: &Fixture, realm: Realm, there: &There) {
    all_there(&realm, there);
    sound(&fixture.path);
    let root = realm.root();
    for (name, _) in realm.list(root, None, usize::MAX).unwrap() {
        realm.delete(root, &name).unwrap();
    }
    let space = realm.space().unwrap();
    assert_eq!(space.used, 0);
    drop(realm.scratch(space.arena, None).expect("nothing leaked"));
    sound(&fixture.path);
    drop(realm);
    let report = engram::verify(&fixture.path).unwrap();
    assert_eq!((report.objects, report.used), (0, 0));
}

/// A process that dies while the pool is full leaves nothing behind.
#[test]
fn who_dies_in_a_full_pool_leaves_nothing_behind() {
    alone("who_dies_in_a_full_pool_leaves_nothing_behind", || {
        let mut random = Random(seed());
        let fixture = Fixture::new(4 << 20);
        for _ in 0..8 {
            let seed = random.next();
            let dying = fork(|line| {
                fixture.pool.close();
                let (_pool, realm) = attach(&fixture.path, Mode::ReadWrite);
                let (mut random, mut there) = (Random(seed), There::new());
                let mut kept = Vec::new();
                line.say(1);
                loop {
                    match realm.scratch(64 << 10, None) {
                        Ok(space) => kept.push(space),
                        Err(error) => refused(&error),
                    }
                    if let Err(error) = one(&realm, &mut random, &mut there) {
                        refused(&error);
                        kept.truncate(kept.len() / 2);
                    }
                }
            });
            dying.line.expect(1);
            (0..random.below(3_000_000)).for_each(|_| std::hint::spin_loop());
            dying.kill();
            let realm = fixture.realm();
            let (root, names) = (realm.root(), realm.list(realm.root(), None, 99).unwrap());
            assert!(names.iter().all(|(_, member)| matches!(member, Member::Group(_))));
            for (name, _) in &names {
                realm.delete(root, name).unwrap();
            }
            drop(realm.scratch(4 << 20, None).expect("all of it can be had"));
            sound(&fixture.path);
        }
    });
}

/// A group of thousands can be deleted where there is not one block for the deletion itself.
#[test]
fn a_large_group_is_deleted_from_a_full_mount() {
    let test = "a_large_group_is_deleted_from_a_full_mount";
    alone(test, || {
        let Some((fixture, _)) = Fixture::on_small_mount(test, 24 << 20) else { return };
        let realm = fixture.realm();
        let root = realm.root();
        put(&realm, "big", &filled(1, 1, 280_000));
        let mut made = 0_u64;
        let refusal = loop {
            let new = object(4, made);
            let path = format!("i/{}/{made}", made % 3);
            match realm.put(root, &path, &new, &filled(2, 2, 4), KEEP) {
                Ok(_) => made += 1,
                Err(error) => break error,
            }
        };
        refused(&refusal);
        assert!(made > 5000, "{made} objects alone fill the mount");
        // Protected, it stays whole: nothing of it goes first.
        let inner = Member::Group(lookup(&realm, "i/1").unwrap());
        realm.set_read_only(inner, true).unwrap();
        assert_eq!(realm.delete(root, "i").unwrap_err().kind(), Kind::ReadOnly);
        realm.set_read_only(inner, false).unwrap();
        assert_eq!(engram::verify(&fixture.path).unwrap().objects, made + 1);
        // In a batch it is one commit, which finds no room.
        realm.begin_batch().unwrap();
        realm.delete(root, "i").unwrap();
        refused(&realm.commit_batch().unwrap_err());
        assert_eq!(engram::verify(&fixture.path).unwrap().objects, made + 1);
        realm.delete(root, "i").unwrap();
        assert_eq!(lookup(&realm, "i"), None);
        sound(&fixture.path);
        assert_eq!(engram::verify(&fixture.path).unwrap().objects, 1);
        assert_eq!(check(&view(&realm, "big")), (1, 1));
        for n in 0..1000 {
            put(&realm, &format!("again{n}"), &filled(3, 3, 4));
        }
    });
}

/// On a full mount a deletion has every snapshot given up that keeps pages of the catalog, and so
/// works beside any. A change that needs more room ends none; it says who has one.
#[test]
fn deleting_from_a_full_mount_works_beside_idle_snapshots() {
    let test = "deleting_from_a_full_mount_works_beside_idle_snapshots";
    alone(test, || {
        let Some((fixture, _)) = Fixture::on_small_mount(test, 24 << 20) else { return };
        let realm = fixture.realm();
        let root = realm.root();
        let large = filled(1, 1, 8000);
        let mut names = Vec::new();
        let put = |name: &str, data: &[u8]| {
            realm.put(root, name, &floats(&[data.len() as u64 / 8]), data, KEEP)
        };
        let mut fill = |what: &str, data: &[u8]| {
            for at in 0.. {
                let name = format!("{what}{at}");
                match put(&name, data) {
                    Ok(_) => names.push(name),
                    Err(error) => return error,
                }
            }
            unreachable!("it is never full")
        };
        refused(&fill("large", &large));
        let holder = fork(|line| {
            let (_pool, own) = attach(&fixture.path, Mode::Read);
            let at = own.snapshot(None).unwrap();
            line.say(1);
            line.expect(2);
            assert!(at.lookup(root, "large0").unwrap().is_some());
            line.say(3);
            line.expect(4);
            let over = at.lookup(root, "large0").unwrap_err();
            assert!(over.kind() == Kind::Busy && over.message().contains("given up"), "{over}");
            line.say(5);
        });
        holder.line.expect(1);
        let ours = realm.snapshot(None).unwrap();
        // Rows alone, until there is no room for one.
        let refusal = fill("small", &[0; 800]);
        refused(&refusal);
        let keeps = format!("process {} keeps ", holder.pid);
        let own = "this process itself keeps ";
        let message = refusal.message();
        assert!(message.contains(&keeps) || message.contains(own), "{refusal}");
        holder.line.say(2);
        holder.line.expect(3);
        assert!(ours.lookup(root, "large0").unwrap().is_some());
        for name in &names {
            realm.delete(root, name).expect("deleting from a full mount");
        }
        holder.line.say(4);
        holder.line.expect(5);
        holder.finish();
        assert_eq!(ours.lookup(root, "large0").unwrap_err().kind(), Kind::Busy);
        sound(&fixture.path);
        for at in 0..20 {
            put(&format!("again{at}"), &large).expect("there is room again");
        }
    });
}
