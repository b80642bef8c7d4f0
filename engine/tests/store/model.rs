//! Random operations, alone and in batches, against a model that is an ordinary map.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::{Fixture, bytes_of, floats, sound};
use engram::{Kind, Member, Payload, Placement, Realm, Result, Value};
use proptest::prelude::*;

/// One operation; paths are made of few names, so that they meet.
#[derive(Clone, Debug)]
enum Op {
    Put { path: String, len: usize, byte: u8, overwrite: bool },
    Allocate { path: String, len: usize, byte: u8, overwrite: bool },
    Zeroed { path: String, len: usize },
    Group { path: String, exist_ok: bool },
    Replace { path: String, byte: u8 },
    Delete { path: String },
    Rename { old: String, new: String },
    SetAttrs { path: String, keys: Vec<(u8, u8)> },
    DeleteAttr { path: String, key: u8 },
}

/// Operations on their own, or a batch of them.
#[derive(Clone, Debug)]
enum Step {
    Alone(Op),
    Batch { ops: Vec<Op>, inner: bool, keep: bool },
}

/// A member: a group, or an object's bytes; and its attributes.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
struct Node {
    bytes: Option<Vec<u8>>,
    attrs: BTreeMap<String, String>,
}

/// Every member by its path; and of the objects those that lie in extents though they are small,
/// since they were allocated.
#[derive(Clone, Debug, Default)]
struct Model(BTreeMap<String, Node>, BTreeSet<String>);

impl PartialEq for Model {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

type Refused = std::result::Result<(), ()>;

impl Model {
    fn is_group(&self, path: &str) -> bool {
        self.0.get(path).is_some_and(|node| node.bytes.is_none())
    }

    /// The groups above a path that are not there; refused where one of them is an object.
    fn missing_above(&self, path: &str) -> std::result::Result<Vec<String>, ()> {
        let mut missing = Vec::new();
        for (at, _) in path.match_indices('/') {
            let above = &path[..at];
            match self.0.get(above) {
                Some(node) if node.bytes.is_some() => return Err(()),
                Some(_) => {}
                None => missing.push(above.to_owned()),
            }
        }
        Ok(missing)
    }

    fn put(&mut self, path: &str, bytes: Option<Vec<u8>>, may_replace: bool) -> Refused {
        let missing = self.missing_above(path)?;
        match self.0.get(path) {
            Some(there) if there.bytes.is_none() || !may_replace => return Err(()),
            _ => {}
        }
        self.0.extend(missing.into_iter().map(|group| (group, Node::default())));
        self.0.insert(path.to_owned(), Node { bytes, attrs: BTreeMap::new() });
        self.1.remove(path);
        Ok(())
    }

    fn below(&self, path: &str) -> Vec<String> {
        let inside = format!("{path}/");
        let is_in = |key: &&String| *key == path || key.starts_with(&inside);
        self.0.keys().filter(is_in).cloned().collect()
    }

    fn rename(&mut self, old: &str, new: &str) -> Refused {
        if !self.0.contains_key(old) {
            return Err(());
        }
        let missing = self.missing_above(new)?;
        if new == old {
            return Ok(());
        }
        if self.0.contains_key(new) || new.starts_with(&format!("{old}/")) {
            return Err(());
        }
        for path in self.below(old) {
            let node = self.0.remove(&path).unwrap();
            let now = format!("{new}{}", &path[old.len()..]);
            if self.1.remove(&path) {
                self.1.insert(now.clone());
            }
            self.0.insert(now, node);
        }
        self.0.extend(missing.into_iter().map(|group| (group, Node::default())));
        Ok(())
    }

    fn apply(&mut self, op: &Op) -> Refused {
        match op {
            Op::Put { path, len, byte, overwrite } => {
                self.put(path, Some(bytes_of(*byte, *len)), *overwrite)
            }
            Op::Allocate { path, len, byte, overwrite } => {
                self.put(path, Some(bytes_of(*byte, *len)), *overwrite)?;
                self.1.insert(path.clone());
                Ok(())
            }
            Op::Zeroed { path, len } => self.put(path, Some(bytes_of(0, *len)), false),
            Op::Group { path, exist_ok } if *exist_ok && self.is_group(path) => Ok(()),
            Op::Group { path, .. } => self.put(path, None, false),
            Op::Replace { path, byte } => {
                let bytes = self.0.get_mut(path).and_then(|node| node.bytes.as_mut()).ok_or(())?;
                bytes.fill(*byte);
                self.1.remove(path);
                Ok(())
            }
            Op::Delete { path } => {
                let gone = self.below(path);
                for path in &gone {
                    self.0.remove(path);
                    self.1.remove(path);
                }
                if gone.is_empty() { Err(()) } else { Ok(()) }
            }
            Op::Rename { old, new } => self.rename(old, new),
            Op::SetAttrs { path, keys } => {
                let node = self.0.get_mut(path).ok_or(())?;
                node.attrs.extend(keys.iter().map(|(k, v)| (format!("k{k}"), v.to_string())));
                Ok(())
            }
            Op::DeleteAttr { path, key } => {
                let node = self.0.get_mut(path).ok_or(())?;
                node.attrs.remove(&format!("k{key}")).map(drop).ok_or(())
            }
        }
    }
}

fn member(realm: &Realm, path: &str) -> Result<Member> {
    let found = realm.lookup(realm.root(), path)?;
    found.ok_or_else(|| engram::Error::new(Kind::NotFound, path))
}

fn perform(realm: &Realm, op: &Op) -> Result<()> {
    let root = realm.root();
    let place = |overwrite: bool| Placement { overwrite, ..Placement::default() };
    let new = |len: usize| floats(&[len as u64 / 8]);
    match op {
        Op::Put { path, len, byte, overwrite } => {
            let data = bytes_of(*byte, *len);
            realm.put(root, path, &new(*len), &data, place(*overwrite)).map(drop)
        }
        Op::Allocate { path, len, byte, overwrite } => {
            let place = place(*overwrite);
            let space = realm.allocate(root, path, &new(*len), *len as u64, place)?;
            // SAFETY: the allocation's own memory.
            unsafe { space.view().as_ptr().write_bytes(*byte, *len) };
            space.publish().map(drop)
        }
        Op::Zeroed { path, len } => {
            realm.create_zeroed(root, path, &new(*len), place(false)).map(drop)
        }
        Op::Group { path, exist_ok } => {
            realm.create_group(root, path, &[], &[], *exist_ok).map(drop)
        }
        Op::Replace { path, byte } => {
            let Member::Object(oid) = member(realm, path)? else {
                return Err(engram::Error::new(Kind::Argument, "a group"));
            };
            let (payload, generation) = realm.payload(oid)?;
            let len = match payload {
                Payload::Inline(bytes) => bytes.len(),
                Payload::Extent(view) => view.len(),
            };
            match realm.replace_payload(oid, generation, &bytes_of(*byte, len)) {
                // A batch writes only to what it has made: then it replaces the whole object.
                Err(error) if error.kind() == Kind::Busy => replace_anew(realm, path, *byte, len),
                done => {
                    assert!(done?, "nobody else writes");
                    Ok(())
                }
            }
        }
        Op::Delete { path } => realm.delete(root, path),
        Op::Rename { old, new } => realm.rename(root, old, root, new),
        Op::SetAttrs { path, keys } => {
            let attrs: Vec<_> =
                keys.iter().map(|(k, v)| (format!("k{k}"), Value::text(&v.to_string()))).collect();
            realm.set_attrs(member(realm, path)?, &attrs)
        }
        Op::DeleteAttr { path, key } => realm.delete_attr(member(realm, path)?, &format!("k{key}")),
    }
}

fn replace_anew(realm: &Realm, path: &str, byte: u8, len: usize) -> Result<()> {
    let attrs = realm.attrs(member(realm, path)?)?;
    let new = engram::NewObject { attrs, ..floats(&[len as u64 / 8]) };
    let over = Placement { overwrite: true, ..Placement::default() };
    realm.put(realm.root(), path, &new, &bytes_of(byte, len), over).map(drop)
}

/// What this thread sees of the realm.
fn seen(realm: &Realm) -> Model {
    let text = |(key, value): (String, Value)| (key, String::from_utf8(value.data).unwrap());
    let mut model = Model::default();
    for (path, bytes) in crate::common::map_of(realm, "") {
        let attrs = realm.attrs(member(realm, &path).unwrap()).unwrap();
        model.0.insert(path, Node { bytes, attrs: attrs.into_iter().map(text).collect() });
    }
    model
}

fn run(realm: &Realm, model: &mut Model, op: &Op) {
    let (expected, done) = (model.apply(op), perform(realm, op));
    assert_eq!(done.is_ok(), expected.is_ok(), "{op:?}: {done:?}");
    assert_eq!(&seen(realm), model, "after {op:?}");
}

fn run_batch(realm: &Realm, model: &mut Model, ops: &[Op], inner: bool, keep: bool) {
    let before = model.clone();
    realm.begin_batch().unwrap();
    for (place, op) in ops.iter().enumerate() {
        if inner && place == ops.len() / 2 {
            realm.begin_batch().unwrap();
        }
        run(realm, model, op);
    }
    if inner && !ops.is_empty() {
        realm.commit_batch().unwrap();
    }
    // Others see nothing of it until it ends.
    let other = realm.clone();
    assert_eq!(std::thread::spawn(move || seen(&other)).join().unwrap(), before);
    if keep {
        realm.commit_batch().unwrap();
    } else {
        realm.abort_batch().unwrap();
        *model = before;
    }
    assert_eq!(&seen(realm), model, "after a batch");
}

fn path() -> impl Strategy<Value = String> {
    prop::collection::vec("[abc]", 1..4).prop_map(|names| names.join("/"))
}

fn op() -> impl Strategy<Value = Op> {
    let len = prop::sample::select(vec![0, 8, 1024, 1032, 5000, 70_000]);
    let (byte, overwrite) = (1..=255_u8, any::<bool>());
    let attrs = prop::collection::vec((0..3_u8, any::<u8>()), 1..4);
    prop_oneof![
        4 => (path(), len.clone(), byte.clone(), overwrite)
            .prop_map(|(path, len, byte, overwrite)| Op::Put { path, len, byte, overwrite }),
        2 => (path(), len.clone(), byte.clone(), overwrite)
            .prop_map(|(path, len, byte, overwrite)| Op::Allocate { path, len, byte, overwrite }),
        1 => (path(), len).prop_map(|(path, len)| Op::Zeroed { path, len }),
        1 => (path(), any::<bool>()).prop_map(|(path, exist_ok)| Op::Group { path, exist_ok }),
        2 => (path(), byte).prop_map(|(path, byte)| Op::Replace { path, byte }),
        3 => path().prop_map(|path| Op::Delete { path }),
        4 => (path(), path()).prop_map(|(old, new)| Op::Rename { old, new }),
        2 => (path(), attrs).prop_map(|(path, keys)| Op::SetAttrs { path, keys }),
        1 => (path(), 0..3_u8).prop_map(|(path, key)| Op::DeleteAttr { path, key }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let ops = prop::collection::vec(op(), 0..12);
    prop_oneof![
        3 => op().prop_map(Step::Alone),
        1 => (ops, any::<bool>(), any::<bool>())
            .prop_map(|(ops, inner, keep)| Step::Batch { ops, inner, keep }),
    ]
}

/// The bytes that the model's objects take in the arena.
fn extent_bytes(model: &Model) -> u64 {
    let of = |(path, bytes): (&String, &Vec<u8>)| match bytes.len() as u64 {
        len @ 0..=1024 if model.1.contains(path) => len.max(1).div_ceil(64) * 64,
        0..=1024 => 0,
        len @ ..0x1_0000 => len.div_ceil(64) * 64,
        len => len.div_ceil(4096) * 4096,
    };
    model.0.iter().filter_map(|(path, node)| Some((path, node.bytes.as_ref()?))).map(of).sum()
}

fn run_all(steps: &[Step]) {
    let fixture = Fixture::new(16 << 20);
    let realm = fixture.realm();
    let mut model = Model::default();
    for step in steps {
        match step {
            Step::Alone(op) => run(&realm, &mut model, op),
            Step::Batch { ops, inner, keep } => {
                run_batch(&realm, &mut model, ops, *inner, *keep);
            }
        }
    }
    let report = sound(&fixture.path);
    assert_eq!(report.used, extent_bytes(&model));
    assert_eq!(report.objects + report.groups, model.0.len() as u64 + 1);
    for path in ["a", "b", "c"] {
        let _ = realm.delete(realm.root(), path);
    }
    // Nothing leaks: all of it can be had in one piece.
    drop(realm.scratch(16 << 20, None).unwrap());
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 96,
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn a_realm_does_what_a_map_does(steps in prop::collection::vec(step(), 1..24)) {
        // In a thread of its own: a batch that a failure leaves open ends with it.
        let ran = std::thread::scope(|scope| scope.spawn(|| run_all(&steps)).join());
        prop_assert!(ran.is_ok(), "see the panic above");
    }
}
