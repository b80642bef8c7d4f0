//! Names that try to lead elsewhere: of members, attributes, namespaces, devices.

use std::path::Path;

use engram::{Kind, Pool, Scope};

use super::world::{all_below, text};
use crate::common::{Fixture, KEEP, floats, sound};

/// Names that are none, of a member or a namespace.
fn bad() -> Vec<String> {
    let bad =
        ["", ".", "..", "/", "//", "a//b", "../x", "x/..", "x/../y", "./x", "x/", "nul\0", "\0"];
    let mut bad: Vec<String> = bad.map(str::to_owned).to_vec();
    bad.extend(["n".repeat(256), "é".repeat(128), format!("{}/x", "n".repeat(256))]);
    bad
}

/// Names that are odd, and harmless: they stay names.
const ODD: [&str; 16] = [
    "a\nb",
    "\n",
    " ",
    "\\..\\",
    "~",
    "-rf",
    "$(x)",
    "%00",
    "\u{202e}x",
    "\x1b[2J",
    "...",
    ".hidden",
    "pool.toml",
    "ns",
    "data.mdb",
    "private",
];

fn tree(path: &Path) -> Vec<std::path::PathBuf> {
    let mut all = all_below(path);
    all.retain(|path| !path.components().any(|part| part.as_os_str() == "leases"));
    all.sort();
    all
}

/// No name of a member makes a file, or leads out of its group.
#[test]
fn names_of_members_lead_nowhere() {
    let fixture = Fixture::new(32 << 20);
    let view = fixture.pool.namespace("default").unwrap();
    let (root, new) = (view.root(), floats(&[1]));
    view.put(root, "there", &new, &[0; 8], KEEP).unwrap();
    let before = tree(fixture.dir.path());
    for name in &bad() {
        let refused = [
            view.put(root, name, &new, &[0; 8], KEEP).map(drop),
            view.create_group(root, name, &[], &[], true, None).map(drop),
            view.rename(root, "there", root, name),
            view.rename(root, name, root, "elsewhere"),
            view.delete(root, name),
            view.lookup(root, name).map(drop),
            match name.as_str() {
                // There it stands for all that there is.
                "/" => view.lookup(root, name).map(drop),
                _ => view.transfer(root, name, &[Scope::Shared], Scope::Private).map(drop),
            },
        ];
        for (place, refused) in refused.into_iter().enumerate() {
            let kind = refused.map_err(|error| error.kind());
            assert_eq!(kind, Err(Kind::InvalidName), "{place}: {name:?}");
        }
    }
    for key in ["", "nul\0", &"k".repeat(256)] {
        let refused =
            view.set_attrs(view.lookup(root, "there").unwrap().unwrap(), &[text(key, "v")]);
        assert_eq!(refused.unwrap_err().kind(), Kind::InvalidName, "{key:?}");
    }
    for name in ODD {
        let group = format!("odd/{name}");
        view.put(root, &group, &new, &[0; 8], KEEP).unwrap();
        let member = view.lookup(root, &group).unwrap().unwrap();
        assert_eq!(view.path_of(member).unwrap(), group);
        view.delete(root, &group).unwrap();
    }
    assert_eq!(tree(fixture.dir.path()), before);
    sound(&fixture.path);
}

/// A namespace is a folder of its name: no name makes one elsewhere, or is taken for another file.
#[test]
fn names_of_namespaces_lead_nowhere() {
    let fixture = Fixture::new(32 << 20);
    let before = tree(fixture.dir.path());
    let make = |name: &str| fixture.pool.create_namespace(name, 0o700, None, None).map(drop);
    let mut names = bad();
    names.extend([".hidden", ".new-x", ".gone-default", &"n".repeat(129)].map(str::to_owned));
    for name in &names {
        let refused = [
            make(name),
            fixture.pool.namespace(name).map(drop),
            fixture.pool.realm(name).map(drop),
            fixture.pool.remove_namespace(name),
        ];
        for (place, refused) in refused.into_iter().enumerate() {
            let kind = refused.map_err(|error| error.kind());
            assert_eq!(kind, Err(Kind::InvalidName), "{place}: {name:?}");
        }
    }
    assert_eq!(tree(fixture.dir.path()), before);
    for name in ODD.into_iter().filter(|name| !name.starts_with('.')) {
        make(name).unwrap();
        assert_eq!(make(name).unwrap_err().kind(), Kind::Exists, "{name:?}");
        drop(fixture.pool.namespace(name).unwrap());
        let listed = fixture.pool.namespaces().unwrap();
        assert!(listed.iter().any(|one| one.name == name), "{name:?}");
        sound(&fixture.path);
        fixture.pool.remove_namespace(name).unwrap();
    }
    assert_eq!(tree(fixture.dir.path()), before);
}

/// A device is a folder that is there, or a node: nothing else is one, and none is made.
#[test]
fn names_of_devices_lead_nowhere() {
    let fixture = Fixture::new(32 << 20);
    let file = fixture.dir.path().join("file");
    std::fs::write(&file, "mine").unwrap();
    let link = fixture.dir.path().join("link");
    std::os::unix::fs::symlink(&fixture.path, &link).unwrap();
    let before = tree(fixture.dir.path());
    let refused = |path: &Path, kind: Kind| {
        let refused = fixture.pool.add_device(path, true).unwrap_err();
        assert_eq!(refused.kind(), kind, "{}: {refused}", path.display());
    };
    refused(Path::new(""), Kind::NotFound);
    refused(Path::new("nul\0"), Kind::NotFound);
    refused(&fixture.dir.path().join("missing"), Kind::NotFound);
    refused(&file, Kind::NotFound);
    refused(&fixture.path, Kind::Exists);
    refused(&link, Kind::Exists);
    refused(&fixture.path.join("ns/.."), Kind::Exists);
    refused(Path::new("/dev/null"), Kind::NotFound);
    assert_eq!(Pool::destroy(&file).unwrap_err().kind(), Kind::Format);
    assert_eq!(tree(fixture.dir.path()), before);
}
