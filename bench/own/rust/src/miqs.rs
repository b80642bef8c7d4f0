//! MIQS+, as the papers describe it, and as good as we could make it.
//!
//! MIQS (SC19, doi 10.1145/3295500.3356146) is an index in DRAM of what HDF5 files say: for each
//! attribute key a search tree, from values to where they occur. MOSIQS (doi
//! 10.1109/ACCESS.2021.3087502) gives it the names of objects too, in a radix tree, and calls that
//! MIQS+. The data stay in HDF5.
//!
//! Here lists hold 4-byte numbers of paths, sorted, where the papers' hold paths; a list of one is
//! kept in the tree itself. Each path has a count of its attributes. A query of several conditions
//! begins with the one that promises the fewest, and the others only thin out what it found: `Eq`
//! by search in its sorted list, `exists` and ranges by passing over lists that cannot meet it.
//!
//! With `presence` each key has also a bitmap of the objects that have it. The papers' MIQS has no
//! such thing; it is shown beside, as what a better one could do.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

use engram::query::ast::{Builtin, Comparison, Expr, Literal, QueryField, Test};

use crate::corpus::Item;
use crate::radix::Radix;

/// The number of a path.
pub type Id = u32;

/// Where a value occurs, ascending. The box keeps it to 16 bytes: most lists of nearly unique keys
/// have one number.
#[allow(clippy::box_collection, reason = "a list beside a number takes 24 bytes, a box 16")]
enum List {
    One(Id),
    Many(Box<Vec<Id>>),
}

impl List {
    fn push(&mut self, id: Id) {
        match self {
            List::One(first) => *self = List::Many(Box::new(vec![*first, id])),
            List::Many(ids) => ids.push(id),
        }
    }

    fn ids(&self) -> &[Id] {
        match self {
            List::One(id) => std::slice::from_ref(id),
            List::Many(ids) => ids,
        }
    }
}

/// A float in `total_cmp`'s order; never NaN, and 0 is never negative.
#[derive(Clone, Copy, PartialEq)]
struct Float(f64);

impl Eq for Float {}

impl PartialOrd for Float {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Float {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// One key: its values, by kind.
#[derive(Default)]
struct Key {
    ints: BTreeMap<i64, List>,
    floats: BTreeMap<Float, List>,
    texts: BTreeMap<Box<str>, List>,
    /// How many objects have it.
    count: usize,
    presence: Vec<u64>,
}

/// The whole index.
pub struct Miqs {
    paths: Radix,
    counts: Vec<u16>,
    keys: HashMap<Box<str>, Key>,
    presence: bool,
}

impl Miqs {
    pub fn new(presence: bool) -> Self {
        Miqs { paths: Radix::new(), counts: Vec::new(), keys: HashMap::new(), presence }
    }

    /// Takes in an object, which must be new.
    pub fn insert<'a>(&mut self, path: &str, attrs: impl Iterator<Item = (&'a str, &'a Item)>) {
        let id = self.paths.insert(path);
        let mut count = 0;
        for (name, item) in attrs {
            count += 1;
            if !self.keys.contains_key(name) {
                self.keys.insert(name.into(), Key::default());
            }
            let key = self.keys.get_mut(name).expect("it was just put");
            key.count += 1;
            if self.presence {
                let word = id as usize / 64;
                key.presence.resize(key.presence.len().max(word + 1), 0);
                key.presence[word] |= 1 << (id % 64);
            }
            key.put(item, id);
        }
        self.counts.push(count);
    }

    /// Gives back what was allocated ahead, and packs the trees.
    pub fn shrink(&mut self) {
        self.paths.shrink();
        self.counts.shrink_to_fit();
        for key in self.keys.values_mut() {
            key.ints = std::mem::take(&mut key.ints).into_iter().collect();
            key.floats = std::mem::take(&mut key.floats).into_iter().collect();
            key.texts = std::mem::take(&mut key.texts).into_iter().collect();
            key.presence.shrink_to_fit();
            let lists = key.ints.values_mut().chain(key.floats.values_mut());
            for list in lists.chain(key.texts.values_mut()) {
                if let List::Many(ids) = list {
                    ids.shrink_to_fit();
                }
            }
        }
    }

    pub fn path(&self, id: Id) -> String {
        self.paths.path(id)
    }

    pub fn count_attributes(&self, ids: &[Id]) -> u64 {
        ids.iter().map(|id| u64::from(self.counts[*id as usize])).sum()
    }

    /// The objects of which an expression is true, ascending. What the papers' queries do not use
    /// (ends, patterns, built-in fields other than names) is refused by its name.
    pub fn query(&self, expr: &Expr) -> Result<Vec<Id>, String> {
        match expr {
            Expr::All => Ok((0..self.paths.len() as Id).collect()),
            Expr::And(parts) => {
                let mut parts: Vec<&Expr> = parts.iter().collect();
                parts.sort_by_cached_key(|part| self.promise(part));
                let Some((first, others)) = parts.split_first() else {
                    return self.query(&Expr::All);
                };
                let mut found = self.query(first)?;
                for part in others {
                    if found.is_empty() {
                        break;
                    }
                    found = self.thin(part, found)?;
                }
                Ok(found)
            }
            Expr::Or(parts) => {
                let found = parts.iter().map(|p| self.query(p)).collect::<Result<Vec<_>, _>>()?;
                Ok(united(found.iter().map(Vec::as_slice), self.paths.len()))
            }
            Expr::Not(part) => {
                let found = self.query(part)?;
                let mut found = found.iter().peekable();
                let all = 0..self.paths.len() as Id;
                Ok(all.filter(|id| found.next_if_eq(&id).is_none()).collect())
            }
            Expr::Under(group) => {
                Ok(sorted(self.paths.below(format!("{}/", group.trim_matches('/')).as_bytes())))
            }
            Expr::Test(QueryField::Builtin(Builtin::Path), Test::Contains(Literal::Text(part))) => {
                Ok(sorted(self.paths.containing(part.as_bytes())))
            }
            Expr::Test(QueryField::Attr(name), test) => {
                let Some(key) = self.keys.get(name.as_str()) else { return Ok(Vec::new()) };
                let lists = key.lists(test)?;
                match lists[..] {
                    [one] => Ok(one.to_vec()),
                    _ => Ok(united(lists.into_iter(), self.paths.len())),
                }
            }
            Expr::Test(field, test) => Err(format!("MIQS+ has no {field:?} {test:?}")),
        }
    }

    /// How much work an expression promises to be, and how many objects.
    fn promise(&self, expr: &Expr) -> usize {
        match expr {
            Expr::Under(_) => 1,
            Expr::Test(QueryField::Attr(name), test) => {
                match (self.keys.get(name.as_str()), test) {
                    (None, _) => 0,
                    (Some(key), Test::Compare(Comparison::Eq, _) | Test::In(_)) => {
                        key.lists(test).map_or(0, |lists| lists.iter().map(|ids| ids.len()).sum())
                    }
                    (Some(key), Test::Exists) => key.count,
                    (Some(key), _) => key.count / 2,
                }
            }
            Expr::And(parts) => parts.iter().map(|part| self.promise(part)).min().unwrap_or(0),
            Expr::Or(parts) => parts.iter().map(|part| self.promise(part)).sum(),
            _ => self.paths.len(),
        }
    }

    /// Those of `found` of which an expression is true.
    fn thin(&self, expr: &Expr, mut found: Vec<Id>) -> Result<Vec<Id>, String> {
        match expr {
            Expr::Test(QueryField::Attr(name), test) => {
                let Some(key) = self.keys.get(name.as_str()) else { return Ok(Vec::new()) };
                if self.presence && *test == Test::Exists {
                    let has = |id: &Id| {
                        let word = key.presence.get(*id as usize / 64);
                        word.is_some_and(|word| word >> (id % 64) & 1 == 1)
                    };
                    found.retain(has);
                    return Ok(found);
                }
                if let Test::Compare(Comparison::Eq, _) = test {
                    let lists = key.lists(test)?;
                    return Ok(sorted(
                        lists.iter().flat_map(|list| common(&found, list)).collect(),
                    ));
                }
                let mut sieve = Sieve::new(&found);
                key.visit(test, &mut |ids| sieve.see(ids))?;
                Ok(sieve.kept())
            }
            Expr::Test(QueryField::Builtin(Builtin::Path), Test::Contains(Literal::Text(part)))
                if found.len() < self.paths.len() / 16 =>
            {
                let part = part.as_bytes();
                let mut path = Vec::new();
                found.retain(|id| {
                    self.paths.climb(*id, &mut path);
                    path.windows(part.len()).any(|window| window == part)
                });
                Ok(found)
            }
            _ => Ok(common(&found, &self.query(expr)?)),
        }
    }
}

impl Key {
    fn put(&mut self, item: &Item, id: Id) {
        match item {
            Item::Int(value) => put(&mut self.ints, *value, id),
            Item::Float(value) if value.is_nan() => {}
            Item::Float(value) => put(&mut self.floats, Float(value + 0.0), id),
            Item::Text(value) => match self.texts.get_mut(value.as_str()) {
                Some(list) => list.push(id),
                None => drop(self.texts.insert(value.as_str().into(), List::One(id))),
            },
        }
    }

    /// The lists of the values of which a test is true.
    fn lists(&self, test: &Test) -> Result<Vec<&[Id]>, String> {
        let mut found = Vec::new();
        self.visit(test, &mut |ids| found.push(ids))?;
        Ok(found)
    }

    /// Visits the lists of the values of which a test is true.
    fn visit<'a>(&'a self, test: &Test, see: &mut impl FnMut(&'a [Id])) -> Result<(), String> {
        use Bound::{Excluded, Included, Unbounded};
        match test {
            Test::Exists => {
                self.ints.values().for_each(|list| see(list.ids()));
                self.floats.values().for_each(|list| see(list.ids()));
                self.texts.values().for_each(|list| see(list.ids()));
            }
            Test::Compare(Comparison::Eq, value) => self.equal(value, see),
            Test::Compare(Comparison::Lt, value) => self.range(&Unbounded, &Excluded(value), see),
            Test::Compare(Comparison::Le, value) => self.range(&Unbounded, &Included(value), see),
            Test::Compare(Comparison::Gt, value) => self.range(&Excluded(value), &Unbounded, see),
            Test::Compare(Comparison::Ge, value) => self.range(&Included(value), &Unbounded, see),
            Test::Between(low, high) => self.range(&Included(low), &Included(high), see),
            Test::In(values) => values.iter().for_each(|value| self.equal(value, see)),
            other => return Err(format!("MIQS+ has no {other:?}")),
        }
        Ok(())
    }

    fn equal<'a>(&'a self, value: &Literal, see: &mut impl FnMut(&'a [Id])) {
        let (int, float) = match value {
            Literal::Text(text) => {
                return self.texts.get(text.as_str()).map(List::ids).into_iter().for_each(see);
            }
            Literal::Int(int) => (Some(*int), *int as f64),
            Literal::Big(big) => (None, *big as f64),
            Literal::Float(float) => ((float.fract() == 0.0).then_some(*float as i64), *float),
        };
        let among_ints = int.and_then(|int| self.ints.get(&int));
        let among_floats = self.floats.get(&Float(float + 0.0));
        among_ints.into_iter().chain(among_floats).map(List::ids).for_each(see);
    }

    /// Visits what lies between two bounds, of the bounds' kind.
    fn range<'a>(
        &'a self,
        low: &Bound<&Literal>,
        high: &Bound<&Literal>,
        see: &mut impl FnMut(&'a [Id]),
    ) {
        if is_text(low) || is_text(high) {
            let bounds = (low.map(literal_text), high.map(literal_text));
            return self.texts.range::<str, _>(bounds).for_each(|(_, list)| see(list.ids()));
        }
        let (from, to) = (low.map(literal_float), high.map(literal_float));
        let inside = (from.map(|v| Float(v + 0.0)), to.map(|v| Float(v + 0.0)));
        self.floats.range(inside).for_each(|(_, list)| see(list.ids()));
        let inside = (least(from), greatest(to));
        if inside.0 <= inside.1 {
            self.ints.range(inside.0..=inside.1).for_each(|(_, list)| see(list.ids()));
        }
    }
}

fn is_text(bound: &Bound<&Literal>) -> bool {
    matches!(bound, Bound::Included(Literal::Text(_)) | Bound::Excluded(Literal::Text(_)))
}

fn literal_text(literal: &Literal) -> &str {
    if let Literal::Text(text) = literal { text } else { "" }
}

fn literal_float(literal: &Literal) -> f64 {
    match literal {
        Literal::Int(value) => *value as f64,
        Literal::Big(value) => *value as f64,
        Literal::Float(value) => *value,
        Literal::Text(_) => f64::NAN,
    }
}

fn least(bound: Bound<f64>) -> i64 {
    match bound {
        Bound::Unbounded => i64::MIN,
        Bound::Included(value) => value.ceil() as i64,
        Bound::Excluded(value) => (value.floor() as i64).saturating_add(1),
    }
}

fn greatest(bound: Bound<f64>) -> i64 {
    match bound {
        Bound::Unbounded => i64::MAX,
        Bound::Included(value) => value.floor() as i64,
        Bound::Excluded(value) => (value.ceil() as i64).saturating_sub(1),
    }
}

fn put<K: Ord>(tree: &mut BTreeMap<K, List>, key: K, id: Id) {
    use std::collections::btree_map::Entry;
    match tree.entry(key) {
        Entry::Occupied(mut list) => list.get_mut().push(id),
        Entry::Vacant(place) => drop(place.insert(List::One(id))),
    }
}

fn sorted(mut ids: Vec<Id>) -> Vec<Id> {
    ids.sort_unstable();
    ids
}

/// What is in any of the lists, ascending. Many objects go through a bitmap, few are sorted.
fn united<'a>(lists: impl Iterator<Item = &'a [Id]> + Clone, objects: usize) -> Vec<Id> {
    let total: usize = lists.clone().map(<[Id]>::len).sum();
    if total < objects / 64 {
        let mut ids = sorted(lists.flatten().copied().collect());
        ids.dedup();
        return ids;
    }
    let mut words = vec![0_u64; objects.div_ceil(64)];
    for id in lists.flatten() {
        words[*id as usize / 64] |= 1 << (id % 64);
    }
    let mut ids = Vec::with_capacity(total);
    for (place, word) in words.iter().enumerate() {
        let mut word = *word;
        while word != 0 {
            ids.push(64 * place as Id + word.trailing_zeros());
            word &= word - 1;
        }
    }
    ids
}

/// What is in both: the shorter one's are sought in the longer one, from where the last was.
fn common(a: &[Id], b: &[Id]) -> Vec<Id> {
    let (short, mut long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    let mut found = Vec::with_capacity(short.len());
    for id in short {
        let mut step = 1;
        while step < long.len() && long[step] < *id {
            step *= 2;
        }
        let window = &long[step / 2..long.len().min(step + 1)];
        let place = step / 2 + window.partition_point(|other| other < id);
        long = &long[place..];
        match long.first() {
            Some(other) if other == id => found.push(*id),
            Some(_) => {}
            None => break,
        }
    }
    found
}

/// Keeps those of some objects that are in any of the lists that it sees; lists beyond their ends
/// are passed over.
struct Sieve<'a> {
    objects: &'a [Id],
    low: Id,
    high: Id,
    /// By the distance from `low`.
    hit: Vec<u64>,
}

impl<'a> Sieve<'a> {
    fn new(objects: &'a [Id]) -> Self {
        let (low, high) = match objects {
            [] => (1, 0),
            [low, ..] => (*low, objects[objects.len() - 1]),
        };
        let span = (high.wrapping_sub(low).wrapping_add(1)) as usize;
        Sieve { objects, low, high, hit: vec![0; span.div_ceil(64)] }
    }

    fn see(&mut self, list: &[Id]) {
        match list {
            [id] if (self.low..=self.high).contains(id) => self.mark(*id),
            [] | [_] => {}
            [first, .., last] if *last < self.low || *first > self.high => {}
            _ => common(self.objects, list).into_iter().for_each(|id| self.mark(id)),
        }
    }

    fn mark(&mut self, id: Id) {
        let at = (id - self.low) as usize;
        self.hit[at / 64] |= 1 << (at % 64);
    }

    fn kept(self) -> Vec<Id> {
        let hit = |id: &&Id| {
            let at = (**id - self.low) as usize;
            self.hit[at / 64] >> (at % 64) & 1 == 1
        };
        self.objects.iter().filter(hit).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Sieve, common, united};
    use crate::radix::Radix;

    #[test]
    fn lists_are_united_and_intersected() {
        let (a, b) = ([1, 5, 9, 200], [2, 5, 9, 10, 11, 300]);
        assert_eq!(common(&a, &b), [5, 9]);
        assert_eq!(common(&b, &a), [5, 9]);
        assert_eq!(common(&[], &a), [0; 0]);
        let mut sieve = Sieve::new(&b);
        for list in [&a[..2], &[300], &[999], &[9]] {
            sieve.see(list);
        }
        assert_eq!(sieve.kept(), [5, 9, 300]);
        let both = [1, 2, 5, 9, 10, 11, 200, 300];
        for objects in [301, 1_000_000] {
            assert_eq!(united([&a[..], &b[..]].into_iter(), objects), both);
        }
    }

    #[test]
    fn paths_are_found_by_their_start_and_by_any_part() {
        let paths = ["a/abab", "a/abac", "b/abab", "a", "a/ab", "c/xyz"];
        let mut tree = Radix::new();
        let ids: Vec<u32> = paths.iter().map(|path| tree.insert(path)).collect();
        assert_eq!(ids, [0, 1, 2, 3, 4, 5]);
        assert_eq!(tree.insert("a/abac"), 1);
        for part in ["", "ab", "abac", "/ab", "babx", "bab", "a", "yz"] {
            let sorted = |mut ids: Vec<u32>| {
                ids.sort_unstable();
                ids
            };
            let those = |is: &dyn Fn(&str) -> bool| {
                (0..6).filter(|id| is(paths[*id as usize])).collect::<Vec<u32>>()
            };
            let found = sorted(tree.containing(part.as_bytes()));
            assert_eq!(found, those(&|path| path.contains(part)), "{part}");
            let found = sorted(tree.below(part.as_bytes()));
            assert_eq!(found, those(&|path| path.starts_with(part)), "{part}");
        }
        for id in ids {
            assert_eq!(tree.path(id), paths[id as usize]);
        }
    }
}
