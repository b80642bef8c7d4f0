//! Views of files: each keeps what it shows from reuse, and no more of the file.

use super::common::{Fixture, Line, alone, blob, contents, fork, put, sound};
use super::{created, make_with};
use engram::{File, Payload, Placement, Realm, View};

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const PAGE: u64 = 4 * KIB;

/// A view of so many bytes of a file, from an offset on.
fn view_of(file: &File, from: u64, most: u64) -> View {
    match file.view_part(from, most, false).expect("a view") {
        Some(Payload::Extent(view)) => view,
        _ => panic!("{most} bytes from {from} on have no memory"),
    }
}

/// How many bytes that were freed somebody still looks at.
fn held(realm: &Realm) -> u64 {
    realm.holders().expect("holders").held
}

/// Fills a file anew, in the place of all that it had.
fn fill(file: &File, byte: u8, len: u64) {
    file.set_size(0).expect("an empty file");
    file.append(&vec![byte; len as usize]).expect("space");
}

/// Has all the space that is free written to, and given back.
fn use_free_space(realm: &Realm) {
    let mut names = Vec::new();
    for len in [MIB, 64 * KIB, 4 * KIB] {
        while let Ok(oid) = realm.put(
            realm.root(),
            &format!("filler/{}", names.len()),
            &blob(),
            &vec![0xff; len as usize],
            Placement::default(),
        ) {
            names.push(oid);
        }
    }
    assert!(!names.is_empty(), "some space is free");
    realm.delete(realm.root(), "filler").expect("fillers that go");
}

#[test]
fn a_file_that_is_filled_anew_again_and_again_while_it_is_viewed_needs_no_more_space() {
    let fixture = Fixture::new(32 << 20);
    let realm = fixture.realm();
    let file = created(&realm, "file");
    fill(&file, 1, MIB);
    let kept = view_of(&file, 0, MIB);
    let mut latest = view_of(&file, 0, MIB);
    for round in 0..200 {
        fill(&file, 2 + round, MIB);
        // At each moment some view shows what the file has now.
        latest = view_of(&file, 0, MIB);
        assert!(contents(&latest).iter().all(|byte| *byte == 2 + round));
    }
    assert!(contents(&kept).iter().all(|byte| *byte == 1), "what it shows is its own");
    assert_eq!(held(&realm), MIB, "of all that was cut, the first is shown");
    drop((kept, latest));
    assert_eq!(held(&realm), 0);
    drop(file);
    sound(&fixture.path);
}

#[test]
fn a_view_of_a_part_keeps_that_part_alone() {
    let fixture = Fixture::new(16 << 20);
    let realm = fixture.realm();
    let file = created(&realm, "file");
    fill(&file, 1, MIB);
    file.punch(40 * PAGE, PAGE).unwrap();
    let parts = [(3, 2), (4, 3), (39, 3), (255, 9)];
    let views = parts.map(|(first, pages)| view_of(&file, first * PAGE, pages * PAGE));
    let sizes = views.each_ref().map(|view| view.len() as u64 / PAGE);
    assert_eq!(sizes, [2, 3, 3, 1], "the last ends with the file");
    file.set_size(0).unwrap();
    use_free_space(&realm);
    assert_eq!(held(&realm), (4 + 2 + 1) * PAGE, "two share a page, and one has a hole");
    for (view, (first, _)) in views.iter().zip(parts) {
        for (place, page) in contents(view).chunks(PAGE as usize).enumerate() {
            let expected = u8::from(first + place as u64 != 40);
            assert!(page.iter().all(|byte| *byte == expected), "page {place} from {first} on");
        }
    }
    let [first, rest @ ..] = views;
    drop(first);
    use_free_space(&realm);
    assert_eq!(held(&realm), 6 * PAGE, "the page that they share is shown still");
    drop(rest);
    use_free_space(&realm);
    assert_eq!(held(&realm), 0);
    assert!(file.view_part(5, PAGE, false).is_err(), "a view begins with a page");
    drop(file);
    sound(&fixture.path);
}

#[test]
fn a_blob_that_is_viewed_and_becomes_a_file_that_is_cut_shows_what_it_was() {
    let fixture = Fixture::new(16 << 20);
    let realm = fixture.realm();
    let oid = make_with(&realm, "blob", &vec![1; MIB as usize]);
    let Payload::Extent(view) = realm.payload(oid).unwrap().0 else { panic!("1 MiB") };
    let file = realm.open_file(oid, true).unwrap();
    file.append(b"more").unwrap();
    assert!(file.segments().unwrap().len() > 1, "its extent is the first of its segments");
    file.punch(10 * PAGE, 100 * PAGE).unwrap();
    file.set_size(5 * PAGE).unwrap();
    use_free_space(&realm);
    assert!(contents(&view).iter().all(|byte| *byte == 1), "nobody else writes there");
    drop((view, file));
    use_free_space(&realm);
    assert_eq!(held(&realm), 0);
    sound(&fixture.path);
}

#[test]
fn a_view_of_a_file_in_very_many_pieces_keeps_what_it_shows() {
    let fixture = Fixture::new(16 << 20);
    let realm = fixture.realm();
    let file = created(&realm, "file");
    fill(&file, 1, 4 * MIB);
    for page in (0..1024).step_by(2) {
        file.punch(page * PAGE, PAGE).unwrap();
    }
    let view = view_of(&file, 0, 4 * MIB);
    file.set_size(0).unwrap();
    use_free_space(&realm);
    for (place, page) in contents(&view).chunks(PAGE as usize).enumerate() {
        assert!(page.iter().all(|byte| usize::from(*byte) == place % 2), "page {place}");
    }
    drop((view, file));
    use_free_space(&realm);
    assert_eq!(held(&realm), 0);
    sound(&fixture.path);
}

#[test]
fn a_child_has_what_its_parent_views_and_what_the_dead_viewed_is_free() {
    let test = "a_child_has_what_its_parent_views_and_what_the_dead_viewed_is_free";
    alone(test, || {
        let fixture = Fixture::new(16 << 20);
        let realm = fixture.realm();
        let file = created(&realm, "file");
        fill(&file, 1, MIB);
        let view = view_of(&file, 8 * PAGE, 4 * PAGE);
        let shows = |view: &View| contents(view).iter().all(|byte| *byte == 1);
        let child = fork(|told: &Line| {
            told.expect(1);
            assert!(shows(&view), "the parent's is gone");
            told.say(2);
            told.hear();
        });
        drop(view);
        file.set_size(0).unwrap();
        use_free_space(&realm);
        assert_eq!(held(&realm), 4 * PAGE);
        child.line.say(1);
        child.line.expect(2);
        child.kill();
        put(&realm, "array", &vec![3; 64 << 10]);
        assert_eq!(held(&realm), 0);
        drop(file);
        sound(&fixture.path);
    });
}

#[test]
fn the_file_that_a_view_is_of_has_its_bytes_at_the_place_that_is_told() {
    use std::os::unix::fs::FileExt;

    let fixture = Fixture::new(32 << 20);
    let realm = fixture.realm();
    for (number, len) in [2000, 4 * KIB, 300_000, 3 * MIB].into_iter().enumerate() {
        let bytes: Vec<u8> = (0..len).map(|at| (at * 7 + number as u64) as u8).collect();
        let name = format!("value-{number}");
        let oid = realm.put(realm.root(), &name, &blob(), &bytes, Placement::default());
        let Payload::Extent(view) = realm.view(oid.expect("space"), false).expect("a view") else {
            panic!("{len} bytes are not inline")
        };
        let (file, offset) = view.source().expect("a look").expect("a file of a device");
        let mut read = vec![0; len as usize];
        file.read_exact_at(&mut read, offset).expect("bytes of the file");
        assert_eq!(read, bytes);
        // What is written in place is there, too: it is the same memory.
        realm.delete(realm.root(), &name).expect("it goes");
        file.read_exact_at(&mut read, offset).expect("bytes of the file");
        assert_eq!(read, bytes, "the view keeps it");
    }
    // Of a file in segments no one place can be told.
    let file = created(&realm, "file");
    fill(&file, 1, MIB);
    assert!(view_of(&file, 0, MIB).source().expect("a look").is_none());
}
