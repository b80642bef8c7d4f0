//! Descriptions: written whole, and read from plain files alone.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{BYTES_MAX, read_toml, write_toml};
use crate::testing::make_fifo;
use engram_base::error::Kind;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Said {
    text: String,
    number: u64,
}

fn said(number: u64) -> Said {
    Said { text: "é \"quoted\"\n".to_owned(), number }
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort_unstable();
    names
}

#[test]
fn what_is_written_is_read_with_this_mode_and_nothing_is_left_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("said.toml");
    for (number, mode) in [(1, 0o644), (2, 0o600), (3, 0o660)] {
        write_toml(&path, &said(number), mode).unwrap();
        assert_eq!(read_toml::<Said>(&path), Ok(said(number)));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, mode);
        assert_eq!(names(dir.path()), ["said.toml"]);
    }
}

#[test]
fn no_byte_of_it_changes_unnoticed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("said.toml");
    write_toml(&path, &said(448), 0o600).unwrap();
    let whole = fs::read(&path).unwrap();
    for at in 0..whole.len() {
        for bit in 0..8 {
            let mut changed = whole.clone();
            changed[at] ^= 1 << bit;
            fs::write(&path, &changed).unwrap();
            match read_toml::<Said>(&path) {
                Err(error) => assert_eq!(error.kind(), Kind::Format, "byte {at}, bit {bit}"),
                // The line is no checksum's any more, or its digit has the other case.
                Ok(read) => assert_eq!(read, said(448), "byte {at}, bit {bit}"),
            }
        }
    }
}

#[test]
fn a_text_without_a_checksum_is_taken_as_it_is_and_the_message_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("said.toml");
    write_toml(&path, &said(448), 0o600).unwrap();
    let edited = fs::read_to_string(&path).unwrap().replace("448", "449");
    fs::write(&path, &edited).unwrap();
    let refused = read_toml::<Said>(&path).unwrap_err();
    assert_eq!(refused.kind(), Kind::Format);
    assert!(refused.message().contains("remove that line"), "{}", refused.message());
    fs::write(&path, edited.split_once('\n').unwrap().1).unwrap();
    assert_eq!(read_toml::<Said>(&path), Ok(said(449)));
}

#[test]
fn the_old_text_stays_whole_for_who_has_it_open() {
    use std::io::Read;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("said.toml");
    write_toml(&path, &said(1), 0o600).unwrap();
    let before = fs::read_to_string(&path).unwrap();
    let mut open = fs::File::open(&path).unwrap();
    write_toml(&path, &said(2), 0o600).unwrap();
    let mut read = String::new();
    open.read_to_string(&mut read).unwrap();
    assert_eq!(read, before, "it is another file, renamed over the old one");
}

#[test]
fn what_was_planted_under_the_passing_name_is_not_written_through() {
    let dir = tempfile::tempdir().unwrap();
    let (path, passing) = (dir.path().join("said.toml"), dir.path().join("said.toml.new"));
    let victim = dir.path().join("victim");
    fs::write(&victim, "untouched").unwrap();
    let plant: [&dyn Fn(); 3] = [
        &|| symlink(&victim, &passing).unwrap(),
        &|| fs::hard_link(&victim, &passing).unwrap(),
        &|| make_fifo(&passing),
    ];
    for plant in plant {
        plant();
        write_toml(&path, &said(4), 0o666).unwrap();
        assert_eq!(read_toml::<Said>(&path), Ok(said(4)));
        assert_eq!(fs::read_to_string(&victim).unwrap(), "untouched");
        assert_ne!(fs::metadata(&victim).unwrap().mode() & 0o777, 0o666);
        assert!(!passing.exists());
    }
    // A folder cannot be taken away so: the old text stays.
    fs::create_dir(&passing).unwrap();
    assert!(write_toml(&path, &said(5), 0o600).is_err());
    assert_eq!(read_toml::<Said>(&path), Ok(said(4)));
}

#[test]
fn a_link_in_place_of_the_file_is_replaced_and_what_it_leads_to_stays() {
    let dir = tempfile::tempdir().unwrap();
    let (path, victim) = (dir.path().join("said.toml"), dir.path().join("victim"));
    fs::write(&victim, "untouched").unwrap();
    symlink(&victim, &path).unwrap();
    write_toml(&path, &said(1), 0o600).unwrap();
    assert!(fs::symlink_metadata(&path).unwrap().is_file());
    assert_eq!(fs::read_to_string(&victim).unwrap(), "untouched");
}

#[test]
fn what_is_no_plain_file_of_a_sane_size_is_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let sound = dir.path().join("sound.toml");
    write_toml(&sound, &said(1), 0o600).unwrap();
    let at = |name: &str| dir.path().join(name);
    symlink(&sound, at("link")).unwrap();
    make_fifo(&at("fifo"));
    fs::create_dir(at("folder")).unwrap();
    fs::File::create(at("long")).unwrap().set_len(BYTES_MAX + 1).unwrap();
    fs::write(at("no text"), [0xff, 0xfe]).unwrap();
    fs::write(at("no toml"), "text = ").unwrap();
    fs::write(at("another"), "text = 1").unwrap();
    for name in ["link", "fifo", "folder", "long", "no text", "no toml", "another"] {
        let refused = read_toml::<Said>(&at(name)).unwrap_err();
        assert_eq!(refused.kind(), Kind::Format, "{name}");
        assert!(refused.message().contains(name), "{name}: {refused}");
    }
    assert_eq!(read_toml::<Said>(&at("none")).unwrap_err().kind(), Kind::NotFound);
}

#[test]
fn a_file_of_the_greatest_size_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("said.toml");
    let mut text = toml::to_string(&said(1)).unwrap();
    text.push_str(&"#".repeat(BYTES_MAX as usize - text.len()));
    fs::write(&path, &text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(read_toml::<Said>(&path), Ok(said(1)));
}
