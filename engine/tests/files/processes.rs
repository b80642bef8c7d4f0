//! Files of several processes: appended to, cut, unlinked, by processes that live and die.

use std::collections::BTreeMap;
use std::time::Duration;

use super::common::{Fixture, Line, Random, alone, attach, contents, fork, seed, sound};
use super::{all, created, make, make_open};
use engram::{Clash, File, Kind, Member, Mode, NamedFile, Oid, Payload, Realm, View};

const LINES: u64 = 5_000;

/// A line of an appender: who, which, and as many dots as make lengths differ.
fn line(who: u64, number: u64) -> Vec<u8> {
    let dots = (number * 7 + who) as usize % 90;
    format!("{who} {number} {}\n", ".".repeat(dots)).into_bytes()
}

fn open(realm: &Realm, path: &str, write: bool) -> engram::Result<File> {
    match realm.lookup(realm.root(), path)? {
        Some(Member::Object(oid)) => realm.open_file(oid, write),
        _ => Err(engram::Error::new(Kind::NotFound, path)),
    }
}

#[test]
fn two_processes_append_lines_and_none_is_lost_torn_or_doubled() {
    let test = "two_processes_append_lines_and_none_is_lost_torn_or_doubled";
    alone(test, || {
        let fixture = Fixture::new(64 << 20);
        make(&fixture.realm(), "log");
        let write = |who: u64| {
            let (_pool, realm) = attach(&fixture.path, Mode::ReadWrite);
            for part in 0..10 {
                let file = open(&realm, "log", true).unwrap();
                for number in part * LINES / 10..(part + 1) * LINES / 10 {
                    file.append(&line(who, number)).unwrap();
                }
            }
        };
        let peers = [1, 2].map(|who| fork(|_| write(who)));
        // A thread of this process, too.
        write(3);
        peers.into_iter().for_each(super::common::Peer::finish);
        let text = String::from_utf8(all(&open(&fixture.realm(), "log", false).unwrap())).unwrap();
        let mut next = BTreeMap::from([(1, 0), (2, 0), (3, 0)]);
        for found in text.lines() {
            let mut words = found.split(' ').map(str::parse::<u64>);
            let (who, number) = (words.next().unwrap().unwrap(), words.next().unwrap().unwrap());
            assert_eq!(format!("{found}\n").into_bytes(), line(who, number));
            assert_eq!(next[&who], number, "in order");
            next.insert(who, number + 1);
        }
        assert!(next.values().all(|count| *count == LINES), "{next:?}");
        sound(&fixture.path);
    });
}

#[test]
fn a_file_that_a_dead_process_had_open_without_a_name_gives_its_space_back() {
    let test = "a_file_that_a_dead_process_had_open_without_a_name_gives_its_space_back";
    alone(test, || {
        let fixture = Fixture::new(64 << 20);
        let realm = fixture.realm();
        let before = realm.space().unwrap().used;
        make(&realm, "file");
        let peer = fork(|told: &Line| {
            let (_pool, realm) = attach(&fixture.path, Mode::ReadWrite);
            let file = open(&realm, "file", true).unwrap();
            file.append(&vec![1; 1_000_000]).unwrap();
            told.say(1);
            told.expect(2);
            file.append(&vec![2; 1_000_000]).unwrap();
            assert_eq!(file.size(), Ok(2_000_000));
            told.say(3);
            told.hear();
        });
        peer.line.expect(1);
        realm.unlink(realm.root(), "file").unwrap();
        peer.line.say(2);
        peer.line.expect(3);
        let held = realm.space().unwrap().used;
        assert!(held >= 2_000_000, "{held} bytes are in use");
        sound(&fixture.path);
        peer.kill();
        // The caretaker of this process sees to it, within a second or two.
        let mut used = held;
        for _ in 0..100 {
            used = realm.space().unwrap().used;
            if used == before {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        assert_eq!(used, before);
        sound(&fixture.path);
    });
}

#[test]
fn a_child_has_the_files_of_its_parent() {
    alone("a_child_has_the_files_of_its_parent", || {
        let fixture = Fixture::new(64 << 20);
        let realm = fixture.realm();
        let file = created(&realm, "file");
        file.append(&vec![1; 100_000]).unwrap();
        realm.unlink(realm.root(), "file").unwrap();
        let child = fork(|told: &Line| {
            told.expect(1);
            // The parent has closed it; here it is open still.
            assert_eq!(all(&file), vec![1; 100_000]);
            file.append(&vec![2; 100_000]).unwrap();
            assert_eq!(file.size(), Ok(200_000));
        });
        let oid = file.oid();
        drop(file);
        child.line.say(1);
        child.finish();
        let mut opened = realm.open_file(oid, false).err().map(|e| e.kind());
        for _ in 0..100 {
            if opened.is_some() {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
            opened = realm.open_file(oid, false).err().map(|e| e.kind());
        }
        assert_eq!(opened, Some(Kind::NotFound));
        sound(&fixture.path);
    });
}

/// A file of the storm is of words, each of which says its own place: whatever comes between, what
/// is read is such a word, or zero.
const FILES: u64 = 4;
const WORDS: u64 = 100_000;
const PAGE: u64 = 4096;

fn word_at(place: u64) -> u64 {
    place | 0xabcd << 40
}

fn check_words(bytes: &[u8], first: u64) {
    for (at, word) in bytes.chunks_exact(8).enumerate() {
        let word = u64::from_le_bytes(word.try_into().unwrap());
        let place = first + at as u64;
        assert!(word == 0 || word == word_at(place), "{word:#x} at {place}");
    }
}

/// Does anything to any of the files, for so many steps.
fn storm(path: &std::path::Path, mut random: Random, steps: u64) {
    let (_pool, realm) = attach(path, Mode::ReadWrite);
    let root = realm.root();
    let mut open_files: Vec<File> = Vec::new();
    let mut views: Vec<(u64, View)> = Vec::new();
    for _ in 0..steps {
        let name = format!("file-{}", random.below(FILES));
        let other = format!("file-{}", random.below(FILES));
        let gone = |error: engram::Error| {
            let passing = [Kind::NotFound, Kind::Exists, Kind::Busy, Kind::PoolFull];
            assert!(passing.contains(&error.kind()), "{error:?}");
        };
        match random.below(14) {
            0 => match realm.lookup(root, &name).unwrap() {
                None if random.below(2) == 0 => match make_open(&realm, &name) {
                    Ok(file) if open_files.len() < 8 => open_files.push(file),
                    Ok(_) => {}
                    Err(error) => gone(error),
                },
                None => {
                    let new = engram::NewObject::blob();
                    let placement = engram::Placement::default();
                    realm.put(root, &name, &new, b"", placement).map_or_else(gone, drop);
                }
                Some(_) => realm.unlink(root, &name).unwrap_or_else(gone),
            },
            1 => {
                let clash = [Clash::Refuse, Clash::Replace, Clash::Exchange];
                let clash = clash[random.below(3) as usize];
                realm.rename_over(root, &name, root, &other, clash).unwrap_or_else(gone);
            }
            2 => {
                if let Ok(Some(Member::Object(oid))) = realm.lookup(root, &name) {
                    realm.link(oid, root, &other).unwrap_or_else(gone);
                }
            }
            3 if !open_files.is_empty() => {
                let place = random.below(open_files.len() as u64) as usize;
                drop(open_files.swap_remove(place));
            }
            4 => match realm.open_named(root, &name, true, &|_, _, _| true) {
                Ok(NamedFile::File(file)) if open_files.len() < 8 => open_files.push(file),
                Ok(_) => {}
                Err(error) => gone(error),
            },
            5 => match open(&realm, &name, true) {
                Ok(file) if open_files.len() < 8 => open_files.push(file),
                Ok(_) => {}
                Err(error) => gone(error),
            },
            _ if open_files.is_empty() => {}
            12 => {
                let file = &open_files[random.below(open_files.len() as u64) as usize];
                view_part(file, &mut views, &mut random).unwrap_or_else(gone);
            }
            13 => {
                check_views(&views);
                if views.len() > 4 {
                    drop(views.swap_remove(random.below(views.len() as u64) as usize));
                }
            }
            action => {
                let file = &open_files[random.below(open_files.len() as u64) as usize];
                let done = one_step(file, action, &mut random);
                done.unwrap_or_else(gone);
            }
        }
    }
}

/// Whether views show the words of their places still.
fn check_views(views: &[(u64, View)]) {
    for (first, view) in views {
        check_words(&contents(view), *first);
    }
}

/// Views some pages of a file, and keeps the view with the place of its first word, unless there
/// are many.
fn view_part(file: &File, views: &mut Vec<(u64, View)>, random: &mut Random) -> engram::Result<()> {
    let from = random.below(WORDS * 8 / PAGE) * PAGE;
    let shown = file.view_part(from, (1 + random.below(30)) * PAGE, false)?;
    if let Some(Payload::Extent(view)) = shown
        && views.len() < 12
    {
        views.push((from / 8, view));
    }
    Ok(())
}

/// Reads, writes, cuts, or makes holes. Sizes are whole words, and so is what is appended.
fn one_step(file: &File, action: u64, random: &mut Random) -> engram::Result<()> {
    let place = random.below(WORDS);
    let count = 1 + random.below(3000);
    let words: Vec<u8> =
        (place..place + count).flat_map(|place| word_at(place).to_le_bytes()).collect();
    match action {
        6 | 7 => file.write_at(place * 8, &words),
        8 => file.set_size(random.below(WORDS) * 8),
        9 => file.punch(place * 8, count * 8),
        10 => file.allocate(place * 8, count * 8, random.below(2) == 0),
        _ => {
            let mut bytes = vec![0xee; (count * 8) as usize];
            let read = file.read_at(place * 8, &mut bytes)?;
            check_words(&bytes[..read], place);
            Ok(())
        }
    }
}

/// Whatever files there are, of whatever names.
fn files_of(realm: &Realm) -> Vec<Oid> {
    let members = realm.list(realm.root(), None, usize::MAX).unwrap();
    let oid = |(_, member): (String, Member)| match member {
        Member::Object(oid) => Some(oid),
        Member::Group(_) => None,
    };
    members.into_iter().filter_map(oid).collect()
}

#[test]
fn whatever_processes_do_and_die_at_a_files_words_are_its_own() {
    let test = "whatever_processes_do_and_die_at_a_files_words_are_its_own";
    alone(test, || {
        let fixture = Fixture::new(24 << 20);
        let realm = fixture.realm();
        let mut random = Random(seed());
        for round in 0..12 {
            let killed = random.below(3) as usize;
            let peers: Vec<_> = (0..3)
                .map(|at| {
                    let own = Random(random.next());
                    let steps = if at == killed { u64::MAX } else { 300 };
                    fork(|_| storm(&fixture.path, own, steps))
                })
                .collect();
            let after = random.below(40);
            for (at, peer) in peers.into_iter().enumerate() {
                if at == killed {
                    std::thread::sleep(Duration::from_millis(after));
                    peer.kill();
                } else {
                    peer.finish();
                }
            }
            sound(&fixture.path);
            for oid in files_of(&realm) {
                let file = realm.open_file(oid, true).unwrap();
                let bytes = all(&file);
                check_words(&bytes, 0);
                // The tail of the one that was killed is taken over.
                file.set_size(bytes.len() as u64 / 8 * 8).unwrap();
            }
            if round % 4 == 3 {
                for (name, _) in realm.list(realm.root(), None, usize::MAX).unwrap() {
                    realm.unlink(realm.root(), &name).unwrap();
                }
                for _ in 0..50 {
                    if realm.space().unwrap().used == 0 {
                        break;
                    }
                    std::thread::sleep(Duration::from_millis(100));
                }
                assert_eq!(realm.space().unwrap().used, 0, "all space came back");
            }
        }
    });
}

/// A file is there, and is removed before the process that makes it has it: it has it all the same,
/// and nobody else gets its space.
#[test]
fn a_file_that_is_removed_while_it_is_made_is_its_makers() {
    alone("a_file_that_is_removed_while_it_is_made_is_its_makers", || {
        let fixture = Fixture::new(64 << 20);
        let realm = fixture.realm();
        let flag = fixture.dir.path().join("flag");
        let seen = flag.clone();
        let maker = fork(|_| {
            let (_pool, realm) = attach(&fixture.path, Mode::ReadWrite);
            drop(created(&realm, "before"));
            engram::faults::on_step(move |step| {
                if step == "commit.committed" && !seen.exists() {
                    std::fs::write(&seen, b"").unwrap();
                    std::thread::sleep(Duration::from_millis(300));
                }
            });
            let file = created(&realm, "file");
            assert_eq!(file.is_orphan(), Ok(true), "the other one was to be quicker");
            file.append(&vec![7; 50_000]).unwrap();
            assert_eq!(all(&file), vec![7; 50_000]);
        });
        while !flag.exists() {
            std::thread::yield_now();
        }
        realm.unlink(realm.root(), "file").unwrap();
        maker.finish();
        drop(realm);
        sound(&fixture.path);
    });
}

/// A removal has looked who has the file open, and is about to commit, when another process opens
/// it: that one is told that it is gone, or has it for as long as it wants.
#[test]
fn a_file_that_is_opened_while_its_removal_commits_is_gone_or_stays() {
    alone("a_file_that_is_opened_while_its_removal_commits_is_gone_or_stays", || {
        let fixture = Fixture::new(64 << 20);
        let realm = fixture.realm();
        let file = created(&realm, "file");
        file.append(&vec![7; 50_000]).unwrap();
        let oid = file.oid();
        drop(file);
        let flag = fixture.dir.path().join("flag");
        let seen = flag.clone();
        let remover = fork(|_| {
            let (_pool, realm) = attach(&fixture.path, Mode::ReadWrite);
            engram::faults::on_step(move |step| {
                if step == "commit.changed" {
                    std::fs::write(&seen, b"").unwrap();
                    std::thread::sleep(Duration::from_millis(300));
                }
            });
            realm.unlink(realm.root(), "file").unwrap();
        });
        while !flag.exists() {
            std::thread::yield_now();
        }
        let opened = realm.open_file(oid, false);
        remover.finish();
        match opened {
            Err(error) => assert_eq!(error.kind(), Kind::NotFound),
            Ok(file) => assert_eq!(all(&file), vec![7; 50_000]),
        }
        drop(realm);
        sound(&fixture.path);
    });
}
