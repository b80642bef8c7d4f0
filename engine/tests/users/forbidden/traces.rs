//! Traces: bytes of what a user keeps, in files that another user may read.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use engram::{Payload, Placement, Scope};

use super::refused;
use super::world::{SECRET, WORDS, Who, World, all_below, array, open, put};
use crate::common::{DAVE, KEEP, TEAM, alone, become_user, contents, fork, is_root};

/// The files below these in which the bytes stand, and where, for those who may read them.
pub fn found(tops: &[&Path], bytes: &[u8]) -> Vec<(PathBuf, u64)> {
    let files = tops.iter().flat_map(|top| all_below(top)).filter(|path| path.is_file());
    files
        .filter_map(|path| Some((stands_in(&File::open(&path).ok()?, bytes)?, path)))
        .map(|(at, path)| (path, at))
        .collect()
}

/// Where one stands in the other.
fn place_in(all: &[u8], bytes: &[u8]) -> Option<usize> {
    let (at, part) = (all.as_ptr(), bytes.as_ptr());
    // SAFETY: two live slices, each with its length.
    let place = unsafe { libc::memmem(at.cast(), all.len(), part.cast(), bytes.len()) };
    (!place.is_null()).then(|| place as usize - at as usize)
}

/// Where the bytes stand in a file. Holes are passed over.
fn stands_in(file: &File, bytes: &[u8]) -> Option<u64> {
    use std::os::fd::AsRawFd;
    const PIECE: usize = 4 << 20;
    let len = file.metadata().ok()?.len();
    let mut piece = vec![0; PIECE + bytes.len()];
    let mut at = 0;
    while at < len {
        // SAFETY: asks where the next byte that is no hole lies.
        let next = unsafe { libc::lseek(file.as_raw_fd(), at.cast_signed(), libc::SEEK_DATA) };
        let Ok(next) = u64::try_from(next) else { break };
        let read = file.read_at(&mut piece, next).ok()?;
        if read == 0 {
            break;
        }
        if let Some(place) = place_in(&piece[..read], bytes) {
            return Some(next + place as u64);
        }
        at = next + (PIECE.min(read)) as u64;
    }
    None
}

/// The first words of what Dave keeps in extents: bytes that nobody else has.
fn marks() -> Vec<Vec<u8>> {
    let (_, data) = array(4, WORDS);
    vec![SECRET.as_bytes().to_vec(), b"word-of-dave".to_vec(), data[..32].to_vec(), vec![9; 16]]
}

/// Takes memory in every way, and looks at what it holds.
fn take(path: &Path, who: &str) {
    let (_pool, open) = open(path, "open");
    let (new, data) = array(4, WORDS);
    let private = Placement { scope: Some(Scope::Private), ..KEEP };
    let mut seen = Vec::new();
    for round in 0..8 {
        let name = format!("{who}{round}");
        let taken = open.allocate(open.root(), &name, &new, data.len() as u64, private).unwrap();
        seen.push(contents(&taken.view()));
        seen.push(contents(&open.scratch(data.len() as u64, None).unwrap()));
        drop(taken);
        let oid = open.create_zeroed(open.root(), &name, &new, private).unwrap();
        let Payload::Extent(view) = open.payload(oid).unwrap().0 else { panic!("{name} is large") };
        assert!(contents(&view).iter().all(|byte| *byte == 0), "{name}: zeros");
    }
    for mark in marks().iter().take(3) {
        let stands = |bytes: &Vec<u8>| place_in(bytes, mark).is_some();
        assert!(!seen.iter().any(stands), "{who} sees {mark:?}");
    }
}

/// A value that a user keeps, and never shares, stands in no file that another may read: not while
/// it is there, not after it is deleted and its space taken, not in the files published beside it.
#[test]
fn nothing_of_what_is_kept_stands_elsewhere() {
    let test = "traces::nothing_of_what_is_kept_stands_elsewhere";
    if !is_root(test) {
        return;
    }
    alone(test, || {
        let world = World::new();
        let tops = world.dirs.each_ref().map(tempfile::TempDir::path);
        // Dave publishes from his private realm, beside the secrets.
        fork(|_| {
            become_user(DAVE, TEAM);
            let (_pool, open) = open(&world.path, "open");
            let (new, data) = array(5, WORDS);
            put(&open, "given", &new, &data, Scope::Private, 0);
            open.transfer(open.root(), "given", &[Scope::Private], Scope::Published).unwrap();
        })
        .finish();
        let mut scans = 0;
        for round in 0..2 {
            for by in [Who::Stranger, Who::Member] {
                let peer = fork(|line| {
                    by.become_them();
                    take(&world.path, &format!("{by:?}{round}"));
                    for mark in marks().iter().take(3) {
                        assert_eq!(found(&tops, mark), [], "{by:?} finds {mark:?}");
                    }
                    line.say(1);
                });
                scans += peer.line.hear();
                peer.finish();
            }
            // What makes the test worth its name: root finds them, where they are.
            let dave = world.places("open", &format!("private/{DAVE}"));
            let dave: Vec<&Path> = dave.iter().map(PathBuf::as_path).collect();
            assert!(round > 0 || marks().iter().all(|mark| !found(&dave, mark).is_empty()));
            fork(|_| {
                become_user(DAVE, TEAM);
                let (_pool, open) = open(&world.path, "open");
                let _ = open.delete(open.root(), SECRET);
                let _ = open.delete(open.root(), "word-of-dave");
            })
            .finish();
        }
        refused(scans * marks().len() as u64, 2, "traces");
    });
}
