//! Whatever is done in a namespace of two scopes, and between them, the view is what a naive model
//! says it is: names, paths, values, scopes, listings in parts, and queries.

use std::collections::BTreeMap;

use crate::common::grids::{chunked, part};
use crate::common::{Fixture, KEEP, Random, floats, seed, sound};
use engram::query::parse;
use engram::{
    DType, Found, Gid, Member, Namespace, NewObject, Payload, Placement, QueryOptions, Scope, Value,
};

/// What a query asks of a hit: its number, path, scope and id.
type Test = dyn Fn(&(i64, String, Scope, u64)) -> bool;

/// A member, as the model has it; hidden ones too.
#[derive(Clone, Debug)]
struct Node {
    parent: u64,
    name: String,
    scope: Scope,
    /// `None` for a group.
    value: Option<i64>,
}

#[derive(Default)]
struct Model {
    root: Gid,
    nodes: BTreeMap<u64, Node>,
}

impl Model {
    /// What has a name: of two, the private one.
    fn child(&self, parent: u64, name: &str) -> Option<u64> {
        let same = self.nodes.iter().filter(|(_, n)| n.parent == parent && n.name == name);
        same.min_by_key(|(_, node)| node.scope).map(|(id, _)| *id)
    }

    fn resolve(&self, path: &str) -> Option<u64> {
        path.split('/').try_fold(self.root, |at, name| self.child(at, name))
    }

    fn path(&self, id: u64) -> String {
        let node = &self.nodes[&id];
        if node.parent == self.root {
            return node.name.clone();
        }
        format!("{}/{}", self.path(node.parent), node.name)
    }

    fn scope(&self, gid: u64) -> Scope {
        self.nodes.get(&gid).map_or(Scope::Shared, |node| node.scope)
    }

    /// What a path leads to, with its path.
    fn shown(&self) -> BTreeMap<String, u64> {
        let all = self.nodes.keys().map(|id| (self.path(*id), *id));
        all.filter(|(path, id)| self.resolve(path) == Some(*id)).collect()
    }

    /// Takes over the groups above a path that the engine has made, and gives the last of them.
    fn parents(&mut self, view: &Namespace, path: &str, scope: Scope) -> u64 {
        let Some((above, _)) = path.rsplit_once('/') else { return self.root };
        let (mut at, mut so_far) = (self.root, String::new());
        for name in above.split('/') {
            so_far = if so_far.is_empty() { name.to_owned() } else { format!("{so_far}/{name}") };
            let known = self.child(at, name);
            let id = known.unwrap_or_else(|| {
                let made = view.lookup(self.root, &so_far).unwrap().expect("a parent was made");
                made.id()
            });
            self.nodes.entry(id).or_insert_with(|| Node {
                parent: at,
                name: name.to_owned(),
                scope,
                value: None,
            });
            at = id;
        }
        at
    }

    /// The scope of what is made at a path without one.
    fn inherited(&self, path: &str) -> Scope {
        let mut at = self.root;
        for name in path.rsplit_once('/').map_or("", |(above, _)| above).split('/') {
            match self.child(at, name) {
                Some(id) => at = id,
                None => break,
            }
        }
        self.scope(at)
    }

    fn delete(&mut self, id: u64) {
        let below: Vec<u64> =
            self.nodes.iter().filter(|(_, n)| n.parent == id).map(|(id, _)| *id).collect();
        for id in below {
            self.delete(id);
        }
        self.nodes.remove(&id);
    }

    /// Moves a member, and all below it, that has one scope to another.
    fn transfer(&mut self, id: u64, from: Scope, to: Scope) {
        let below: Vec<u64> =
            self.nodes.iter().filter(|(_, n)| n.parent == id).map(|(id, _)| *id).collect();
        for id in below {
            self.transfer(id, from, to);
        }
        let node = self.nodes.get_mut(&id).expect("it is there");
        if node.scope == from {
            node.scope = to;
        }
    }
}

fn int(value: i64) -> Value {
    let data = value.to_le_bytes().to_vec();
    Value { dtype: DType::scalar(b'i', b'<', 8), shape: Vec::new(), data }
}

/// Whether the object of this number is a chunked array.
fn in_chunks(value: i64) -> bool {
    value % 3 == 0
}

fn some_path(random: &mut Random) -> String {
    let depth = 1 + random.below(3);
    let names: Vec<_> = (0..depth).map(|_| ["a", "b", "c"][random.below(3) as usize]).collect();
    names.join("/")
}

/// Most often one of the paths that lead to something.
fn likely_path(model: &Model, random: &mut Random) -> String {
    let shown = model.shown();
    match shown.keys().nth(random.below(shown.len() as u64 + 1) as usize) {
        Some(path) if random.below(4) > 0 => path.clone(),
        _ => some_path(random),
    }
}

fn some_scope(random: &mut Random) -> Option<Scope> {
    [None, None, Some(Scope::Private), Some(Scope::Shared)][random.below(4) as usize]
}

/// A member goes from one scope to the other, if it can.
fn transfer(view: &Namespace, model: &mut Model, path: &str, random: &mut Random) -> bool {
    let both = [Scope::Private, Scope::Shared];
    let (from, to) = if random.below(2) == 0 { (0, 1) } else { (1, 0) };
    let moved = view.transfer(model.root, path, &[both[from]], both[to]).is_ok();
    match model.resolve(path) {
        Some(id) if moved => model.transfer(id, both[from], both[to]),
        there => assert!(!moved || there.is_some(), "{path} was not there"),
    }
    moved
}

/// One operation; the model follows those that succeed. Whether it did.
fn step(view: &Namespace, model: &mut Model, random: &mut Random, count: i64) -> bool {
    let (root, scope, what) = (model.root, some_scope(random), random.below(10));
    // A new member may be anywhere; one that is deleted, moved or renamed had better be there.
    let path = if what < 5 { some_path(random) } else { likely_path(model, random) };
    let name = path.rsplit('/').next().unwrap().to_owned();
    match what {
        0..4 => {
            let overwrite = random.below(2) == 0;
            let attrs = vec![("k".to_owned(), int(count)), ("m".to_owned(), int(count % 7))];
            let new = if in_chunks(count) { chunked(&[1], &[1], "lz4") } else { floats(&[1]) };
            let new = NewObject { attrs, ..new };
            let placement = Placement { overwrite, scope, ..KEEP };
            let there = model.resolve(&path);
            let implied = match there {
                Some(id) if overwrite => model.nodes[&id].scope,
                _ => model.inherited(&path),
            };
            let Ok(oid) = view.put(root, &path, &new, &count.to_le_bytes(), placement) else {
                return false;
            };
            let scope = scope.unwrap_or(implied);
            let parent = model.parents(view, &path, scope);
            let old = model
                .nodes
                .iter()
                .find(|(_, n)| n.parent == parent && n.name == name && n.scope == scope);
            if let Some(old) = old.map(|(id, _)| *id) {
                model.nodes.remove(&old);
            }
            model.nodes.insert(oid, Node { parent, name, scope, value: Some(count) });
        }
        4 => {
            let implied = model.inherited(&path);
            let Ok(gid) = view.create_group(root, &path, &[], &[], false, scope) else {
                return false;
            };
            let scope = scope.unwrap_or(implied);
            let parent = model.parents(view, &path, scope);
            model.nodes.insert(gid, Node { parent, name, scope, value: None });
        }
        5 => {
            if view.delete(root, &path).is_err() {
                assert!(model.resolve(&path).is_none(), "{path} was there");
                return false;
            }
            model.delete(model.resolve(&path).expect("it was there"));
        }
        6 | 7 => return transfer(view, model, &path, random),
        _ => {
            let new = some_path(random);
            let Some(id) = model.resolve(&path) else {
                assert!(view.rename(root, &path, root, &new).is_err());
                return false;
            };
            if view.rename(root, &path, root, &new).is_err() {
                return false;
            }
            if model.resolve(&new) != Some(id) {
                let parent = model.parents(view, &new, model.nodes[&id].scope);
                let node = model.nodes.get_mut(&id).unwrap();
                (node.parent, node.name) = (parent, new.rsplit('/').next().unwrap().to_owned());
            }
        }
    }
    true
}

/// The members below a group, listed in parts of a few names.
fn walk(view: &Namespace, gid: Gid, prefix: &str, part: usize, all: &mut BTreeMap<String, u64>) {
    let mut after: Option<String> = None;
    loop {
        let listed = view.list_found(gid, after.as_deref(), part).unwrap();
        for (name, found) in &listed {
            let path = format!("{prefix}{name}");
            let id = match found {
                Found::Group(inner) => {
                    walk(view, *inner, &format!("{path}/"), part, all);
                    *inner
                }
                Found::Object(info) => info.oid,
            };
            assert!(all.insert(path, id).is_none(), "{name} is listed twice");
        }
        match listed.last() {
            Some((last, _)) if listed.len() == part => after = Some(last.clone()),
            _ => return,
        }
    }
}

fn agree(view: &Namespace, model: &Model, random: &mut Random) {
    let shown = model.shown();
    let mut listed = BTreeMap::new();
    walk(view, model.root, "", 1 + random.below(4) as usize, &mut listed);
    assert_eq!(listed, shown);
    let mut hits = Vec::new();
    for (path, id) in &shown {
        let node = &model.nodes[id];
        let member = if node.value.is_some() { Member::Object(*id) } else { Member::Group(*id) };
        assert_eq!(view.path_of(member).unwrap(), *path);
        assert_eq!(view.scope_of(member).unwrap(), node.scope, "{path}");
        assert_eq!(view.lookup(model.root, path).unwrap(), Some(member));
        if let Some(value) = node.value {
            let bytes = match view.payload(*id) {
                _ if in_chunks(value) => part(view, *id, &[0], &[1]),
                Ok((Payload::Inline(bytes), _)) => bytes,
                _ => panic!("{path} is neither inline nor in chunks"),
            };
            assert_eq!(bytes, value.to_le_bytes());
            hits.push((value, path.clone(), node.scope, *id));
        }
    }
    let options = QueryOptions::default();
    let paths = |query: &str| view.query_paths(&parse(query).unwrap(), &options).unwrap();
    let wanted = |test: &Test| {
        let mut all: Vec<_> = hits.iter().filter(|hit| test(hit)).collect();
        all.sort_by_key(|hit| -hit.0);
        all.iter().map(|hit| hit.1.clone()).collect::<Vec<_>>()
    };
    let all = wanted(&|_| true);
    assert_eq!(paths("k >= 0 order by k desc"), all);
    let some = wanted(&|hit| hit.0 % 7 == 3 || hit.1.starts_with("a/"));
    assert_eq!(paths("m = 3 or under(\"a\") order by k desc"), some);
    assert_eq!(paths("m = 3 or @path startswith \"a/\" order by k desc limit 2"), {
        some.iter().take(2).cloned().collect::<Vec<_>>()
    });
    let own = wanted(&|hit| hit.2 == Scope::Private);
    assert_eq!(paths("@scope = \"private\" order by k desc"), own);
    let count = |query: &str| view.query_count(&parse(query).unwrap(), &options).unwrap();
    assert_eq!(count("m = 3 or under(\"a\")"), some.len() as u64);
    assert_eq!(count("limit 3"), all.len().min(3) as u64);
    let attributes = view.query_count_attributes(&parse("k >= 0").unwrap(), &options).unwrap();
    assert_eq!(attributes, 2 * all.len() as u64);
    let mut oids: Vec<u64> = hits.iter().map(|hit| hit.3).collect();
    oids.sort_unstable();
    assert_eq!(view.query(&parse("").unwrap(), &options).unwrap().oids, oids);
    let names = view.names_of(&oids).unwrap();
    assert!(names.iter().zip(&oids).all(|(n, oid)| *n == Some(model.nodes[oid].name.clone())));
}

#[test]
fn the_view_is_what_a_naive_model_says() {
    let mut random = Random(seed());
    let mut done = 0;
    for _ in 0..6 {
        let fixture = Fixture::new(32 << 20);
        let view = fixture.pool.namespace("default").unwrap();
        let mut model = Model { root: view.root(), ..Model::default() };
        for count in 0..120 {
            done += u64::from(step(&view, &mut model, &mut random, count));
            agree(&view, &model, &mut random);
        }
        drop(view);
        fixture.pool.close();
        sound(&fixture.path);
    }
    assert!(done > 150, "only {done} of 720 operations did anything");
}
