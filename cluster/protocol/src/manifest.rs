//! What a name of the cluster is: parts, boxes, holders.
//!
//! A manifest is the value of one row of the coordinator, as JSON. It says for a *subtree* where
//! all below a group lies, and for an *array of boxes* which part holds which box. A part is asked
//! for by the uuid of its manifest: each publication has a uuid of its own, so nobody is given
//! bytes of another generation. Where a publication seals what another one made, its manifest names
//! that one: its parts stay where they are, and are asked for by the uuid that they were made with.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use crate::coordinator::{LeaseId, Revision};
use crate::map::Map;
use crate::rules::Rules;

/// The most parts of an array: a manifest stays below a megabyte.
pub const PARTS_MOST: usize = 16_384;

/// The most bytes of the manifests of one publication: etcd takes 1.5 MiB at once, and a node that
/// comes back may add itself to a manifest.
pub const BYTES_MOST: usize = 1_400_000;

/// Who holds something: a node in one of its lives.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Holder {
    /// The node's uuid.
    pub node: String,
    /// The member that it was when it took the part.
    pub member: LeaseId,
}

/// What a name is, in one generation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Of this publication, and of no other.
    pub uuid: String,
    /// It grows with each publication of the name, even if the name was removed in between: a
    /// revision of the coordinator at which the maker had looked, after the publication before.
    pub generation: Revision,
    /// Those who hold something of it. Parts refer to them by place.
    pub holders: Vec<Holder>,
    /// What it is.
    #[serde(flatten)]
    pub content: Content,
}

/// What kind of thing a name is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Content {
    /// All below the name lies on the one holder.
    Node,
    /// All below the name lies on the holder to which its first name below is hashed.
    Hash {
        /// The share of each holder.
        weights: Vec<f64>,
    },
    /// An array in parts.
    Array(Boxes),
}

/// An array in parts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Boxes {
    /// The dtype of its items, as numpy writes it.
    pub dtype: String,
    /// Its shape.
    pub shape: Vec<u64>,
    /// The names of its dimensions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dims: Option<Vec<String>>,
    /// Its attributes.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub attrs: serde_json::Map<String, serde_json::Value>,
    /// What items are that no part covers, in the bytes of the dtype; zeros where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fill: Option<Vec<u8>>,
    /// Whether nothing of it is ever written again.
    pub sealed: bool,
    /// How many holders each part was to have.
    pub replicas: u32,
    /// The uuid of the publication that made the parts, where this one has sealed them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made: Option<String>,
    /// The parts. No two boxes overlap.
    pub parts: Vec<Part>,
}

/// A part of an array: one box.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Where the box begins.
    #[serde(rename = "o")]
    pub offsets: Vec<u64>,
    /// How long it is.
    #[serde(rename = "n")]
    pub counts: Vec<u64>,
    /// Its holders: places in the manifest's list.
    #[serde(rename = "h")]
    pub holders: Vec<u32>,
    /// What its bytes sum up to, where it is sealed.
    #[serde(rename = "c", default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<u64>,
}

impl Part {
    /// Whether the box has an item in common with this one.
    pub fn overlaps(&self, offsets: &[u64], counts: &[u64]) -> bool {
        let mine = self.offsets.iter().zip(&self.counts);
        let other = offsets.iter().zip(counts);
        let end = |at: &u64, count: &u64| at.saturating_add(*count);
        mine.zip(other).all(|((a, n), (b, m))| *a.max(b) < end(a, n).min(end(b, m)))
    }
}

impl Manifest {
    /// The manifest that these bytes are, or why they are none.
    pub fn decode(bytes: &[u8]) -> Result<Manifest, String> {
        let manifest: Manifest =
            serde_json::from_slice(bytes).map_err(|error| format!("no manifest: {error}"))?;
        manifest.check()?;
        Ok(manifest)
    }

    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a manifest is JSON")
    }

    /// What is wrong with it, if anything is: holders that are none, or twice the same, boxes
    /// outside the array or over each other, too many parts, sizes that no memory has.
    pub fn check(&self) -> Result<(), String> {
        let mut known = HashSet::new();
        if let Some(twice) = self.holders.iter().find(|holder| !known.insert(*holder)) {
            return Err(format!("{} {:x} is a holder twice", twice.node, twice.member));
        }
        match &self.content {
            Content::Node if self.holders.len() == 1 => Ok(()),
            Content::Node => {
                Err(format!("a node subtree has one holder, not {}", self.holders.len()))
            }
            Content::Hash { weights } if weights.len() != self.holders.len() => Err(format!(
                "a hash subtree has a weight for each holder: {} for {}",
                weights.len(),
                self.holders.len()
            )),
            Content::Hash { weights } => {
                if let Some(weight) = weights.iter().find(|w| !(**w > 0.0 && w.is_finite())) {
                    return Err(format!("a weight is a number above 0, not {weight}"));
                }
                let places: Vec<u32> = (0..weights.len() as u32).collect();
                self.check_holders(&places).map_err(|why| format!("a hash subtree {why}"))
            }
            Content::Array(array) => {
                for (number, part) in array.parts.iter().enumerate() {
                    self.check_holders(&part.holders)
                        .map_err(|why| format!("part {number} {why}"))?;
                }
                array.check()
            }
        }
    }

    /// What is wrong with the holders of a part: each is another node.
    fn check_holders(&self, places: &[u32]) -> Result<(), String> {
        if places.is_empty() {
            return Err("has no holder".to_owned());
        }
        let mut nodes = HashSet::new();
        for place in places {
            let Some(holder) = self.holders.get(*place as usize) else {
                return Err(format!("names holder {place} of {}", self.holders.len()));
            };
            if !nodes.insert(&holder.node) {
                return Err(format!("has node {} as a holder twice", holder.node));
            }
        }
        Ok(())
    }

    /// The array in parts that it is.
    pub fn array(&self) -> Option<&Boxes> {
        if let Content::Array(boxes) = &self.content { Some(boxes) } else { None }
    }

    /// The uuid by which its parts are asked for.
    pub fn parts_uuid(&self) -> &str {
        self.array().and_then(|boxes| boxes.made.as_deref()).unwrap_or(&self.uuid)
    }

    /// What a part's bytes sum up to, if it is sealed.
    pub fn checksum_of(&self, part: u32) -> Option<u64> {
        self.array().and_then(|boxes| boxes.parts.get(part as usize)?.checksum)
    }

    /// The holders of a part; of a subtree, which is one part: all holders.
    pub fn holders_of(&self, part: u32) -> Vec<&Holder> {
        match &self.content {
            Content::Array(boxes) => boxes.parts.get(part as usize).map_or(Vec::new(), |part| {
                part.holders.iter().map(|at| &self.holders[*at as usize]).collect()
            }),
            Content::Node | Content::Hash { .. } => self.holders.iter().collect(),
        }
    }

    /// Whether a node holds something of it that no other node has which answers: one that is away
    /// may not come back. What lies below a subtree has one home.
    pub fn is_only_at(&self, node: &str, map: &Map) -> bool {
        let Some(boxes) = self.array() else {
            return self.holders.iter().any(|holder| holder.node == node);
        };
        let is_alone = |part: u32| {
            let (own, others): (Vec<_>, Vec<_>) =
                self.holders_of(part).into_iter().partition(|holder| holder.node == node);
            !own.is_empty() && !others.iter().any(|other| map.is_member(other, Rules::ALL))
        };
        (0..boxes.parts.len() as u32).any(is_alone)
    }
}

impl Manifest {
    /// Puts a member of a node in place of a former one, as the holder of these parts alone: others
    /// of the node's parts may not have outlived it. A subtree is one part.
    pub fn enter(&mut self, parts: &[u32], node: &str, member: LeaseId) {
        let now = Holder { node: node.to_owned(), member };
        let Content::Array(boxes) = &mut self.content else {
            for holder in self.holders.iter_mut().filter(|holder| holder.node == node) {
                holder.member = member;
            }
            return;
        };
        let place = self.holders.iter().position(|holder| *holder == now).unwrap_or_else(|| {
            self.holders.push(now);
            self.holders.len() - 1
        });
        for part in parts {
            let Some(part) = boxes.parts.get_mut(*part as usize) else { continue };
            for at in &mut part.holders {
                if self.holders[*at as usize].node == node {
                    *at = place as u32;
                }
            }
        }
        self.drop_unused();
    }

    /// Forgets holders that no part refers to.
    fn drop_unused(&mut self) {
        let Content::Array(boxes) = &mut self.content else { return };
        let mut used = vec![false; self.holders.len()];
        for at in boxes.parts.iter().flat_map(|part| &part.holders) {
            used[*at as usize] = true;
        }
        let places: Vec<u32> = (used.iter())
            .scan(0, |next, used| {
                let place = *next;
                *next += u32::from(*used);
                Some(place)
            })
            .collect();
        for at in boxes.parts.iter_mut().flat_map(|part| &mut part.holders) {
            *at = places[*at as usize];
        }
        let mut used = used.into_iter();
        self.holders.retain(|_| used.next().unwrap_or(false));
    }
}

impl Boxes {
    fn check(&self) -> Result<(), String> {
        if self.parts.len() > PARTS_MOST {
            let most = PARTS_MOST;
            return Err(format!("an array has at most {most} parts, not {}", self.parts.len()));
        }
        if !has_room(&self.shape) {
            return Err(format!("shape {:?} has more items than memory can have", self.shape));
        }
        for (number, part) in self.parts.iter().enumerate() {
            if self.sealed && part.checksum.is_none() {
                return Err(format!("part {number} of a sealed array has no checksum"));
            }
            let fits = part.offsets.len() == self.shape.len()
                && part.counts.len() == self.shape.len()
                && (part.offsets.iter().zip(&part.counts).zip(&self.shape))
                    .all(|((at, n), all)| at.checked_add(*n).is_some_and(|end| end <= *all));
            if !fits {
                return Err(format!(
                    "part {number} at {:?} of counts {:?} is not within shape {:?}",
                    part.offsets, part.counts, self.shape
                ));
            }
        }
        match self.first_overlap() {
            Some((one, other)) => Err(format!("parts {one} and {other} overlap")),
            None => Ok(()),
        }
    }

    /// Two parts that have an item in common. Parts are sorted along the dimension that divides
    /// them most: only those that begin before another ends are compared.
    fn first_overlap(&self) -> Option<(usize, usize)> {
        let begins = |dim: usize| self.parts.iter().map(move |part| part.offsets[dim]);
        let dims = 0..self.shape.len();
        let along = dims.max_by_key(|dim| begins(*dim).collect::<HashSet<u64>>().len());
        let begin = |part: &Part| along.map(|dim| part.offsets[dim]);
        let mut order: Vec<usize> = (0..self.parts.len()).collect();
        order.sort_by_key(|number| begin(&self.parts[*number]));
        for (place, &one) in order.iter().enumerate() {
            let part = &self.parts[one];
            let end = along.map_or(0, |dim| part.offsets[dim] + part.counts[dim]);
            for &other in &order[place + 1..] {
                let next = &self.parts[other];
                if begin(next).is_some_and(|at| at >= end) {
                    break;
                }
                if part.overlaps(&next.offsets, &next.counts) {
                    return Some((one.min(other), one.max(other)));
                }
            }
        }
        None
    }
}

/// Whether memory can have an item of one byte at each place. Counts of zero are passed over: what
/// has no items has rows and columns yet.
fn has_room(shape: &[u64]) -> bool {
    let mut counts = shape.iter().filter(|count| **count > 0);
    counts.try_fold(1_u64, |all, count| all.checked_mul(*count)).is_some_and(|all| all < 1 << 63)
}

#[cfg(test)]
mod tests {
    use super::{Boxes, Content, Holder, Manifest, PARTS_MOST, Part};

    fn grid(rows: u64, columns: u64, item: u64) -> Vec<Part> {
        let at = |row, column| Part {
            offsets: vec![row * item, column * item],
            counts: vec![item, item],
            holders: vec![(row % 4) as u32],
            checksum: Some(u64::MAX - row * columns - column),
        };
        (0..rows).flat_map(|row| (0..columns).map(move |column| at(row, column))).collect()
    }

    fn manifest(shape: Vec<u64>, parts: Vec<Part>) -> Manifest {
        let holders =
            (0..4).map(|n| Holder { node: format!("{n:032x}"), member: n }).collect::<Vec<_>>();
        let boxes = Boxes { dtype: "<f8".into(), shape, parts, replicas: 1, ..Boxes::default() };
        let content = Content::Array(boxes);
        Manifest { uuid: "ab".repeat(16), generation: 3, holders, content }
    }

    #[test]
    fn the_largest_grid_stays_below_a_megabyte_and_comes_back_equal() {
        let most = manifest(vec![128 * 4096, 128 * 4096], grid(128, 128, 4096));
        let bytes = most.encode();
        assert_eq!(most.array().unwrap().parts.len(), PARTS_MOST);
        assert!(bytes.len() < 1_400_000, "{} bytes", bytes.len());
        assert_eq!(Manifest::decode(&bytes).unwrap(), most);
        // Columns as well as rows, and all parts of a node at once.
        let mut columns = manifest(vec![4, PARTS_MOST as u64 * 4], grid(1, PARTS_MOST as u64, 4));
        assert!(columns.check().is_ok());
        let all: Vec<u32> = (0..PARTS_MOST as u32).collect();
        columns.enter(&all, &format!("{:032x}", 0), 77);
        assert!(all.iter().all(|part| columns.holders_of(*part)[0].member == 77));
    }

    #[test]
    fn boxes_that_overlap_or_leave_the_array_are_refused_by_number() {
        let mut parts = grid(2, 2, 10);
        parts[3].offsets = vec![9, 5];
        let wrong = manifest(vec![20, 20], parts);
        assert_eq!(wrong.check().unwrap_err(), "parts 0 and 3 overlap");
        let wrong = manifest(vec![20, 19], grid(2, 2, 10));
        assert!(wrong.check().unwrap_err().starts_with("part 1 at [0, 10]"), "{:?}", wrong.check());
        let mut many = manifest(vec![20, 20], grid(2, 2, 10));
        many.holders.truncate(1);
        assert!(many.check().is_err());
    }

    #[test]
    fn holders_and_checksums_that_are_missing_or_twice_are_refused_and_sizes_that_overflow() {
        let whole = || {
            let mut whole = manifest(vec![20, 20], grid(2, 2, 10));
            let Content::Array(boxes) = &mut whole.content else { panic!() };
            boxes.sealed = true;
            whole
        };
        let refused = |change: &dyn Fn(&mut Manifest, &mut Boxes), why: &str| {
            let mut wrong = whole();
            let Content::Array(mut boxes) = wrong.content.clone() else { panic!() };
            change(&mut wrong, &mut boxes);
            wrong.content = Content::Array(boxes);
            let told = Manifest::decode(&wrong.encode()).unwrap_err();
            assert!(told.contains(why), "{told}, not {why}");
        };
        assert_eq!(whole().check(), Ok(()));
        refused(&|_, boxes| boxes.parts[2].holders.clear(), "part 2 has no holder");
        refused(&|_, boxes| boxes.parts[1].holders = vec![1, 1], "as a holder twice");
        refused(&|all, _| all.holders[3] = all.holders[0].clone(), "is a holder twice");
        refused(&|_, boxes| boxes.parts[3].checksum = None, "part 3 of a sealed array");
        refused(&|_, boxes| boxes.shape = vec![1 << 32, 1 << 31], "more items than memory");
        refused(&|_, boxes| boxes.shape = vec![u64::MAX, 0, u64::MAX], "more items than memory");
        // One life of a node and another, as two holders of one part.
        refused(
            &|all, boxes| {
                all.holders[1].node = all.holders[0].node.clone();
                boxes.parts[0].holders = vec![0, 1];
            },
            "as a holder twice",
        );
        let mut hash = whole();
        hash.content = Content::Hash { weights: vec![1.0; 4] };
        assert_eq!(hash.check(), Ok(()));
        hash.holders[1].node = hash.holders[0].node.clone();
        assert!(hash.check().unwrap_err().contains("as a holder twice"));
    }

    #[test]
    fn a_node_that_comes_back_is_the_holder_of_what_it_has() {
        let mut back = manifest(vec![40, 20], grid(4, 2, 10));
        // Parts 2 and 3 are node 1's; it has part 2 yet.
        back.enter(&[2], &format!("{:032x}", 1), 77);
        assert_eq!(back.holders_of(2)[0].member, 77);
        assert_eq!(back.holders_of(3)[0].member, 1);
        back.enter(&[3], &format!("{:032x}", 1), 77);
        assert_eq!(back.holders_of(3)[0].member, 77);
        assert_eq!(back.holders.len(), 4);
        assert!((4..8).all(|part| back.holders_of(part)[0].member == u64::from(part / 2)));
        assert!(back.check().is_ok());
    }

    #[test]
    fn an_empty_box_overlaps_nothing() {
        let none = Part { offsets: vec![3], counts: vec![0], ..Part::default() };
        assert!(!none.overlaps(&[0], &[10]));
        // An array without dimensions has one item.
        assert!(Part::default().overlaps(&[], &[]));
    }
}
