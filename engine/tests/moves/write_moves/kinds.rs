//! The kinds of plain change, each with what must be true after it.

use std::collections::BTreeMap;

use engram::{Class, DType, Found, Gid, Kind, Member, Namespace, NewObject, Oid, Result, Value};

use crate::common::moves::value_of;
use crate::common::{KEEP, OVER, filled, floats};

/// The group that moves, and one beside it that does not.
pub const GROUP: &str = "m";
const BESIDE: &str = "beside";

/// How many names a writer has at most.
const NAMES: u64 = 5;
const MANY_NAMES: usize = 25;

/// An object as it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thing {
    oid: Oid,
    /// Zero for zeros.
    version: u64,
    words: usize,
    attrs: BTreeMap<String, u64>,
    read_only: bool,
}

/// What one writer has acknowledged. Nobody else writes under its names.
#[derive(Clone)]
pub struct Model {
    /// The beginning of its names, and whose its values are.
    pub tag: &'static str,
    pub number: u64,
    things: BTreeMap<String, Thing>,
    /// Groups below the one that moves, with their attribute.
    groups: BTreeMap<String, (Gid, u64)>,
    /// The writer's attributes of the group that moves.
    attrs: BTreeMap<String, u64>,
    /// What is deleted.
    gone: Vec<(String, Member)>,
}

/// A kind of change: does the `n`th to the pool, and, if that is acknowledged, to the model.
pub type Change = fn(&Namespace, &mut Model, u64) -> Result<()>;

/// All kinds, by the names that they give to what they write.
pub const KINDS: [(&str, Change); 16] = [
    ("put-over", put_over),
    ("put-new", put_new),
    ("allocate", allocate),
    ("zeros", zeros),
    ("batch", batch),
    ("delete", delete),
    ("rename", rename),
    ("rename-into", rename_into),
    ("attribute", set_attr),
    ("attribute-gone", delete_attr),
    ("group-attribute", set_group_attr),
    ("group-attribute-gone", delete_group_attr),
    ("replace", replace),
    ("read-only", read_only),
    ("group", create_group),
    ("group-gone", delete_group),
];

fn value(number: u64) -> Value {
    let dtype = DType::Scalar { kind: b'i', order: b'<', size: 8, unit: None };
    Value { dtype, shape: Vec::new(), data: number.to_le_bytes().to_vec() }
}

fn number(value: &Value) -> u64 {
    u64::from_le_bytes(value.data.as_slice().try_into().expect("eight bytes"))
}

/// Some values lie in their records, some in extents.
fn words(n: u64) -> usize {
    if n.is_multiple_of(3) { 300 } else { 5 }
}

fn new(words: usize, n: u64) -> NewObject {
    NewObject {
        class: Class::Array,
        attrs: vec![("v".into(), value(n))],
        ..floats(&[words as u64])
    }
}

impl Model {
    pub fn new(tag: &'static str, number: u64) -> Self {
        let (things, groups) = (BTreeMap::new(), BTreeMap::new());
        Model { tag, number, things, groups, attrs: BTreeMap::new(), gone: Vec::new() }
    }

    fn path(&self, n: u64) -> String {
        format!("{GROUP}/{}-{n}", self.tag)
    }

    fn data(&self, n: u64, words: usize) -> Vec<u8> {
        filled(self.number, n, words)
    }

    /// An object is there, in the place of what was there before.
    fn is_there(&mut self, path: String, oid: Oid, version: u64, words: usize, n: u64) {
        let attrs = BTreeMap::from([("v".into(), n)]);
        let thing = Thing { oid, version, words, attrs, read_only: false };
        if let Some(before) = self.things.insert(path.clone(), thing) {
            self.gone.push((path, Member::Object(before.oid)));
        }
    }

    fn is_gone(&mut self, path: String) {
        let thing = self.things.remove(&path).expect("it was there");
        self.gone.push((path, Member::Object(thing.oid)));
    }

    /// An object that is there, made if there is none.
    fn any(&mut self, at: &Namespace, n: u64) -> Result<Option<(String, Oid)>> {
        let path = self.path(n % NAMES);
        if let Some(thing) = self.things.get(&path) {
            return Ok(Some((path, thing.oid)));
        }
        put(at, self, path, n, words(n)).map(|()| None)
    }

    /// Whether all is as it must be; what is not, else.
    pub fn check(&self, at: &Namespace) -> std::result::Result<(), String> {
        for (path, thing) in &self.things {
            self.check_thing(at, path, thing).map_err(|what| format!("{path}: {what}"))?;
        }
        for (path, (gid, attr)) in &self.groups {
            let found = at.lookup(at.root(), path).expect("a look-up");
            if found != Some(Member::Group(*gid)) {
                return Err(format!("{path} is {found:?}, not the group {gid:#x}"));
            }
            let found = at.attr(Member::Group(*gid), "v").expect("attributes").as_ref().map(number);
            if found != Some(*attr) {
                return Err(format!("{path} has v={found:?}, not {attr}"));
            }
        }
        let group = at.lookup(at.root(), GROUP).expect("a look-up").expect("the group");
        let mut found = all_attrs(at, group);
        found.retain(|key, _| key.split_once(':').is_some_and(|(tag, _)| tag == self.tag));
        if found != self.attrs {
            return Err(format!("the group has {found:?}, not {:?}", self.attrs));
        }
        self.check_gone(at, self.gone.len())
    }

    /// Whether the last of what is gone is.
    fn check_gone(&self, at: &Namespace, last: usize) -> std::result::Result<(), String> {
        for (path, member) in self.gone.iter().rev().take(last) {
            let there = match member {
                Member::Object(oid) => at.object(*oid).map(drop),
                Member::Group(gid) => at.group(*gid).map(drop),
            };
            if there.map_err(|error| error.kind()) != Err(Kind::NotFound) {
                return Err(format!("{member:?}, once {path}, is there again"));
            }
            if !self.things.contains_key(path) && !self.groups.contains_key(path) {
                let found = at.lookup(at.root(), path).expect("a look-up");
                if let Some(found) = found {
                    return Err(format!("{path} was deleted, and is {found:?}"));
                }
            }
        }
        Ok(())
    }

    /// Whether what a change has to do with is as it must be: what differs between two models, and
    /// what went last.
    pub fn check_change(&self, before: &Model, at: &Namespace) -> std::result::Result<(), String> {
        if self.attrs != before.attrs {
            return self.check(at);
        }
        for (path, thing) in &self.things {
            if before.things.get(path) != Some(thing) {
                self.check_thing(at, path, thing).map_err(|what| format!("{path}: {what}"))?;
            }
        }
        self.check_gone(at, 1)
    }

    fn check_thing(
        &self,
        at: &Namespace,
        path: &str,
        thing: &Thing,
    ) -> std::result::Result<(), String> {
        let told = |error: engram::Error| error.to_string();
        let oid = match at.find(at.root(), path).map_err(told)? {
            Some(Found::Object(info)) => info.oid,
            found => return Err(format!("{found:?} is there, not object {:#x}", thing.oid)),
        };
        if oid != thing.oid {
            return Err(format!("it is object {oid:#x}, not {:#x}", thing.oid));
        }
        let member = Member::Object(oid);
        let whole = match thing.version {
            0 => vec![0; thing.words * 8],
            version => self.data(version, thing.words),
        };
        let found = value_of(at, oid);
        if found != whole {
            let version = found.get(8..16).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
            return Err(format!("its value is not version {}, but {version:?}", thing.version));
        }
        let attrs = all_attrs(at, member);
        if attrs != thing.attrs {
            return Err(format!("it has the attributes {attrs:?}, not {:?}", thing.attrs));
        }
        let read_only = at.is_read_only(member).map_err(told)?;
        if read_only != thing.read_only {
            return Err(format!("that it is read-only is {read_only}"));
        }
        Ok(())
    }
}

fn all_attrs(at: &Namespace, member: Member) -> BTreeMap<String, u64> {
    let attrs = at.attrs(member).expect("attributes").into_iter();
    attrs.map(|(key, value)| (key, number(&value))).collect()
}

fn group_of(at: &Namespace) -> Member {
    at.lookup(at.root(), GROUP).expect("a look-up").expect("the group")
}

fn put(at: &Namespace, model: &mut Model, path: String, n: u64, words: usize) -> Result<()> {
    let data = model.data(n, words);
    let oid = at.put(at.root(), &path, &new(words, n), &data, OVER)?;
    model.is_there(path, oid, n, words, n);
    Ok(())
}

fn put_over(at: &Namespace, model: &mut Model, n: u64) -> Result<()> {
    let path = model.path(n % NAMES);
    put(at, model, path, n, words(n))
}

fn put_new(at: &Namespace, model: &mut Model, n: u64) -> Result<()> {
    if model.things.len() == MANY_NAMES {
        let first = model.things.keys().next().expect("one").clone();
        at.delete(at.root(), &first)?;
        model.is_gone(first);
        return Ok(());
    }
    let (path, words) = (model.path(n), words(n));
    let oid = at.put(at.root(), &path, &new(words, n), &model.data(n, words), KEEP)?;
    model.is_there(path, oid, n, words, n);
    Ok(())
}

fn allocate(at: &Namespace, model: &mut Model, n: u64) -> Result<()> {
    let (path, words) = (model.path(n % NAMES), 200 + n as usize % 100);
    let space = at.allocate(at.root(), &path, &new(words, n), words as u64 * 8, OVER)?;
    space.write(&model.data(n, words));
    let oid = space.publish()?;
    model.is_there(path, oid, n, words, n);
    Ok(())
}

fn zeros(at: &Namespace, model: &mut Model, n: u64) -> Result<()> {
    let (path, words) = (model.path(n % NAMES), 200 + n as usize % 100);
    let oid = at.create_zeroed(at.root(), &path, &new(words, n), OVER)?;
    model.is_there(path, oid, 0, words, n);
    Ok(())
}

fn batch(at: &Namespace, model: &mut Model, n: u64) -> Result<()> {
    let running = at.batch()?;
    for name in 0..3 {
        let path = model.path(name);
        put(at, model, path, n, words(n + name))?;
    }
    if n.is_multiple_of(4) {
        let path = model.path(2);
        at.delete(at.root(), &path)?;
        model.is_gone(path);
    }
    running.commit()
}

fn delete(at: &Namespace, model: &mut Model, n: u64) -> Result<()> {
    if let Some((path, _)) = model.any(at, n)? {
        at.delete(at.root(), &path)?;
        model.is_gone(path);
    }
    Ok(())
}

fn rename_to(at: &Namespace, model: &mut Model, old: &str, path: String) -> Result<()> {
    at.rename(at.root(), old, at.root(), &path)?;
    let thing = model.things.remove(old).expect("it was there");
    model.gone.retain(|(gone, _)| *gone != path);
    model.things.insert(path, thing);
    Ok(())
}

fn rename(at: &Namespace, model: &mut Model, n: u64) -> Result<()> {
    let Some((old, _)) = model.things.first_key_value() else {
        let path = model.path(n);
        return put(at, model, path, n, words(n));
    };
    let old = old.clone();
    let path = model.path(n);
    rename_to(at, model, &old, path)
}

/// Into the group that moves, and out of it.
fn rename_into(at: &Namespace, model: &mut Model, n: u64) -> Result<()> {
    let beside = |n: u64| format!("{BESIDE}/{}-{n}", "rename-into");
    let Some((old, _)) = model.things.first_key_value() else {
        return put(at, model, beside(n), n, words(n));
    };
    let old = old.clone();
    let path = if old.starts_with(BESIDE) { model.path(n) } else { beside(n) };
    rename_to(at, model, &old, path)
}

fn set_attr(at: &Namespace, model: &mut Model, n: u64) -> Result<()> {
    if let Some((path, oid)) = model.any(at, n)? {
        at.set_attrs(Member::Object(oid), &[("a".into(), value(n)), ("b".into(), value(n + 1))])?;
        let attrs = &mut model.things.get_mut(&path).expect("it is there").attrs;
        attrs.extend([("a".into(), n), ("b".into(), n + 1)]);
    }
    Ok(())
}

fn delete_attr(at: &Namespace, model: &mut Model, n: u64) -> Result<()> {
    let Some((path, oid)) = model.any(at, n)? else { return Ok(()) };
    let attrs = &mut model.things.get_mut(&path).expect("it is there").attrs;
    if attrs.contains_key("a") {
        at.delete_attr(Member::Object(oid), "a")?;
        attrs.remove("a");
    } else {
        at.set_attrs(Member::Object(oid), &[("a".into(), value(n))])?;
        attrs.insert("a".into(), n);
    }
    Ok(())
}

fn set_group_attr(at: &Namespace, model: &mut Model, n: u64) -> Result<()> {
    let key = format!("{}:{}", model.tag, n % 3);
    at.set_attrs(group_of(at), &[(key.clone(), value(n))])?;
    model.attrs.insert(key, n);
    Ok(())
}

fn delete_group_attr(at: &Namespace, model: &mut Model, n: u64) -> Result<()> {
    let key = format!("{}:", model.tag);
    if model.attrs.is_empty() {
        at.set_attrs(group_of(at), &[(key.clone(), value(n))])?;
        model.attrs.insert(key, n);
    } else {
        at.delete_attr(group_of(at), &key)?;
        model.attrs.clear();
    }
    Ok(())
}

fn replace(at: &Namespace, model: &mut Model, n: u64) -> Result<()> {
    if let Some((path, oid)) = model.any(at, n)? {
        let words = model.things[&path].words;
        let (_, generation) = at.payload(oid)?;
        let replaced = at.replace_payload(oid, generation, &model.data(n, words))?;
        assert!(replaced, "nobody else writes to {path}");
        model.things.get_mut(&path).expect("it is there").version = n;
    }
    Ok(())
}

fn read_only(at: &Namespace, model: &mut Model, n: u64) -> Result<()> {
    if let Some((path, oid)) = model.any(at, n)? {
        let thing = model.things.get_mut(&path).expect("it is there");
        at.set_read_only(Member::Object(oid), !thing.read_only)?;
        thing.read_only = !thing.read_only;
    }
    Ok(())
}

fn create_group(at: &Namespace, model: &mut Model, n: u64) -> Result<()> {
    if model.groups.len() == MANY_NAMES {
        return model.delete_first_group(at);
    }
    let path = model.path(n);
    let attrs = [("v".to_owned(), value(n))];
    let gid = at.create_group(at.root(), &path, &attrs, b"", false, None)?;
    model.groups.insert(path, (gid, n));
    Ok(())
}

/// A group with a group and two objects in it, which go with it.
fn delete_group(at: &Namespace, model: &mut Model, n: u64) -> Result<()> {
    let path = model.path(0);
    if !model.groups.contains_key(&path) {
        let attrs = [("v".to_owned(), value(n))];
        let gid = at.create_group(at.root(), &path, &attrs, b"", false, None)?;
        model.gone.retain(|(gone, _)| *gone != path);
        model.groups.insert(path, (gid, n));
        return Ok(());
    }
    match model.things.len() {
        2 => model.delete_first_group(at),
        many => put(at, model, format!("{path}/inner/{many}"), n, words(n + many as u64)),
    }
}

impl Model {
    fn delete_first_group(&mut self, at: &Namespace) -> Result<()> {
        let (path, (gid, _)) = self.groups.first_key_value().expect("one");
        let (path, gid) = (path.clone(), *gid);
        at.delete(at.root(), &path)?;
        self.groups.remove(&path);
        self.gone.push((path, Member::Group(gid)));
        while let Some((below, _)) = self.things.first_key_value() {
            self.is_gone(below.clone());
        }
        Ok(())
    }
}
