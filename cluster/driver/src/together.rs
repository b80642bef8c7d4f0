//! Publishing together: what several processes make, and one of them publishes.
//!
//! *Protocol*. The publisher begins, and tells the other processes a token: which maker it is, and
//! which of its publications this one is. Every process stores what it has in the pool of its own
//! node, and asks nobody. The uuid of an array follows from the token and the array's name; the
//! number of a part is for the time being one of the process's own. At the end every process tells
//! what it has made. The publisher draws up a plan of it. Every process gives its parts the numbers
//! of the plan, and seals them. Then the publisher publishes all names, in as few transactions as
//! there can be. How the texts travel between the processes is the callers' matter.
//!
//! *Invariant*: nothing has a name before the publisher's transaction. Parts that no name has are
//! given back by the process that made them; where that one is gone, by their holder, once the
//! publisher's lease has ended.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

use engram_base::dtype::DType;
use engram_base::error::{Error as StoreError, Kind};
use engram_base::mutex::lock;
use engram_base::telemetry::operation;
use engram_parts::pool::BoxOf;
use engram_parts::{Mark, NewPart, PartName, Parts, checksum_of, dtype};
use engram_protocol::coordinator::LeaseId;
use engram_protocol::manifest::{BYTES_MOST, Boxes, Content, Holder, Manifest, PARTS_MOST, Part};
use engram_protocol::publish::{NAMES_MOST, Proposal};
use serde::{Deserialize, Serialize};

use crate::cluster::Cluster;
use crate::error::{Error, Result};
use crate::plan::{
    Numbers, Shape, Share, Sums, Told, check_former, chosen_of, decoded, described, encoded,
    gathered, is_like, lines, numbered, read_all,
};
use crate::session::Beginning;

/// The most processes: their places and the numbers of their parts share 31 bits.
pub const PROCESSES_MOST: u32 = 1 << 17;
/// Numbers that parts have for the time being begin here: no plan gives one so large.
const FIRST_OWN: u32 = 1 << 31;
/// Manifests of one transaction have so many bytes together, unless one alone has more.
const BATCH_BYTES: usize = BYTES_MOST / 2;

/// What all processes of a publication know of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Token {
    maker: LeaseId,
    begun: u64,
    uuid: String,
}

impl Token {
    /// The uuid of the array of this name.
    fn uuid_of(&self, path: &str) -> String {
        format!("{}-{:016x}", self.uuid, checksum_of(path.as_bytes()))
    }
}

/// A part of this process.
#[derive(Debug)]
struct Stored {
    shape: Shape,
    number: u32,
    /// Whether its bytes are all there.
    is_there: bool,
}

/// An array of which this process makes something.
#[derive(Debug)]
struct Making {
    dtype: DType,
    shape: Option<Vec<u64>>,
    is_whole: bool,
    attrs: serde_json::Map<String, serde_json::Value>,
    stored: Vec<Stored>,
    /// The number of its next part.
    next: u32,
}

/// How far a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It stores.
    Stores,
    /// It has sealed what it has: the publisher may have published it.
    Sealed,
}

/// What a process has made.
#[derive(Debug)]
struct Made {
    stage: Stage,
    arrays: BTreeMap<String, Making>,
}

/// What this process has of something that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Own {
    /// All of it, and it was copied.
    Copied,
    /// It stores into that array, and has not all of what is asked for.
    Part,
    /// Nothing: it makes no such array.
    None,
}

/// A process's share in a publication.
pub struct Together {
    cluster: Arc<Cluster>,
    token: Token,
    /// Of the publisher: the publication goes on as long as this is there.
    beginning: Mutex<Option<Arc<Beginning>>>,
    /// Which of the processes this one is.
    place: u32,
    /// The process that stores: a child that was forked from it has no share.
    process: u32,
    /// The uuids of the manifests that the plan replaces, by their names.
    former: Mutex<HashMap<String, Option<String>>>,
    made: Mutex<Made>,
}

impl Together {
    /// Begins a publication, as its publisher: the token, for the others and itself.
    pub fn begin(cluster: &Arc<Cluster>) -> Result<(String, Together)> {
        let (maker, beginning) = cluster.begin_together()?;
        let token = Token { maker, begun: beginning.number, uuid: Cluster::new_uuid()? };
        let text = encoded(&token);
        Ok((text, Together::new(cluster, token, Some(beginning), 0)))
    }

    /// Takes part in a publication, as the process of this place: each has another, and the
    /// publisher has 0.
    pub fn join(cluster: &Arc<Cluster>, token: &str, place: u32) -> Result<Together> {
        if place == 0 || place >= PROCESSES_MOST {
            return Err(Error::Argument(format!(
                "place {place}: those who join have places from 1 on, below {PROCESSES_MOST}"
            )));
        }
        Ok(Together::new(cluster, decoded("a token", token)?, None, place))
    }

    fn new(
        cluster: &Arc<Cluster>,
        token: Token,
        beginning: Option<Arc<Beginning>>,
        place: u32,
    ) -> Together {
        let made = Made { stage: Stage::Stores, arrays: BTreeMap::new() };
        let (cluster, beginning) = (Arc::clone(cluster), Mutex::new(beginning));
        let (process, former) = (std::process::id(), Mutex::default());
        Together { cluster, token, beginning, place, process, former, made: Mutex::new(made) }
    }

    fn parts(&self) -> Result<&Parts> {
        self.cluster.own_parts().ok_or_else(|| {
            Error::Argument(
                "this process has no node pool: open the cluster with that of this host".to_owned(),
            )
        })
    }

    fn is_own(&self) -> bool {
        self.process == std::process::id()
    }

    fn storing(&self) -> Result<MutexGuard<'_, Made>> {
        if !self.is_own() {
            return Err(Error::Argument(
                "this share is of the process from which this one was forked: open the cluster anew"
                    .to_owned(),
            ));
        }
        let made = lock(&self.made);
        if made.stage == Stage::Stores {
            return Ok(made);
        }
        Err(Error::Argument("this publication has ended: begin another".to_owned()))
    }

    /// Says what array is to be of this name. One process is enough; all that say it say the same.
    pub fn array(&self, path: &str, dtype: &DType, shape: &[u64]) -> Result<()> {
        let mut made = self.storing()?;
        let making = making_of(&mut made, path, dtype)?;
        match &making.shape {
            Some(own) if own != shape => Err(Error::Store(StoreError::new(
                Kind::Exists,
                format!("{path:?} is being made with dims {own:?}, and {shape:?} were asked for"),
            ))),
            _ => {
                making.shape = Some(shape.to_vec());
                Ok(())
            }
        }
    }

    /// Sets the attributes of an array that this process makes; the first process's count.
    pub fn set_attrs(
        &self,
        path: &str,
        attrs: serde_json::Map<String, serde_json::Value>,
    ) -> Result<()> {
        let mut made = self.storing()?;
        let making = made.arrays.get_mut(path).ok_or_else(|| {
            Error::Argument(format!("this process makes no {path:?}: say its dims first"))
        })?;
        making.attrs = attrs;
        Ok(())
    }

    /// Stores a box in the pool of this host's node. A box within one that this process has stored
    /// is written in place; one that is partly over it is refused.
    pub fn store(
        &self,
        path: &str,
        dtype: &DType,
        offsets: &[u64],
        counts: &[u64],
        data: &[u8],
    ) -> Result<()> {
        check_nbytes(path, dtype, counts, data)?;
        let shape = Shape { offsets: offsets.to_vec(), counts: counts.to_vec() };
        let number = {
            let mut made = self.storing()?;
            // A store that is refused leaves nothing that would have to be published.
            let known = made.arrays.get(path).and_then(|making| making.shape.as_deref());
            check_within(path, known, &shape)?;
            let making = making_of(&mut made, path, dtype)?;
            if counts.contains(&0) {
                return Ok(());
            }
            if let Some(at) = making.place_for(path, &shape)? {
                let (number, begins) = (at.number, at.shape.offsets.clone());
                drop(made);
                return self.write(path, number, &begins, &shape, data);
            }
            let number = FIRST_OWN | (self.place << 14) | making.next(path)?;
            making.stored.push(Stored { shape: shape.clone(), number, is_there: false });
            number
        };
        let done = self.make(path, dtype, number, shape, data);
        let mut made = lock(&self.made);
        if let Some(making) = made.arrays.get_mut(path) {
            match done {
                Ok(()) => making.find(number).into_iter().for_each(|own| own.is_there = true),
                Err(_) => making.stored.retain(|own| own.number != number),
            }
        }
        done
    }

    /// Stores an array as a whole, a single value, too: in place of what this process has stored of
    /// it. Of several processes that do so, the first one's counts.
    pub fn put(&self, path: &str, dtype: &DType, shape: &[u64], data: &[u8]) -> Result<()> {
        check_nbytes(path, dtype, shape, data)?;
        let is_like = |own: &Making| own.dtype == *dtype && own.shape.as_deref() == Some(shape);
        let replaces = self
            .storing()?
            .arrays
            .get(path)
            .is_some_and(|own| !is_like(own) || !own.is_whole && !own.stored.is_empty());
        if replaces {
            self.drop_array(path)?;
        }
        self.array(path, dtype, shape)?;
        self.store(path, dtype, &vec![0; shape.len()], shape, data)?;
        if let Some(making) = lock(&self.made).arrays.get_mut(path) {
            making.is_whole = true;
        }
        Ok(())
    }

    fn name_of(&self, path: &str, number: u32) -> PartName {
        PartName { uuid: self.token.uuid_of(path), part: number }
    }

    fn make(
        &self,
        path: &str,
        dtype: &DType,
        number: u32,
        shape: Shape,
        data: &[u8],
    ) -> Result<()> {
        let Token { maker, begun, .. } = self.token;
        let mark =
            Mark { path: path.to_owned(), maker, begun, offsets: shape.offsets, checksum: None };
        let (name, dtype) = (self.name_of(path, number), dtype.clone());
        let new = NewPart { name, mark, dtype, counts: shape.counts };
        Ok(self.parts()?.put(&new, data)?)
    }

    fn write(
        &self,
        path: &str,
        number: u32,
        begins: &[u64],
        shape: &Shape,
        data: &[u8],
    ) -> Result<()> {
        let within: Vec<u64> = shape.offsets.iter().zip(begins).map(|(at, own)| at - own).collect();
        let cut = BoxOf { offsets: &within, counts: &shape.counts, of: None };
        let done = self.parts()?.store(&self.name_of(path, number), cut, data);
        done.map_err(|error| given_back(path, error))
    }

    /// Copies a box that this process has stored.
    pub fn load(
        &self,
        path: &str,
        dtype: &DType,
        offsets: &[u64],
        counts: &[u64],
        out: &mut [u8],
    ) -> Result<Own> {
        let asked = Shape { offsets: offsets.to_vec(), counts: counts.to_vec() };
        let (number, within) = {
            let made = lock(&self.made);
            let Some(making) = made.arrays.get(path) else { return Ok(Own::None) };
            if making.stored.is_empty() && !counts.contains(&0) {
                return Ok(Own::None);
            }
            check_dtype(path, &making.dtype, dtype)?;
            if counts.contains(&0) {
                return Ok(Own::Copied);
            }
            let has = |own: &&Stored| own.is_there && own.shape.covers(&asked);
            let Some(own) = making.stored.iter().find(has) else { return Ok(Own::Part) };
            let begins = own.shape.offsets.iter();
            let within: Vec<u64> = offsets.iter().zip(begins).map(|(at, own)| at - own).collect();
            (own.number, within)
        };
        let cut = BoxOf { offsets: &within, counts, of: None };
        let done = self.parts()?.load(&self.name_of(path, number), cut, out);
        done.map_err(|error| given_back(path, error))?;
        Ok(Own::Copied)
    }

    /// The dtype and dims of an array that this process makes; none where it makes none.
    pub fn known(&self, path: &str) -> Option<(DType, Option<Vec<u64>>)> {
        let made = lock(&self.made);
        made.arrays.get(path).map(|making| (making.dtype.clone(), making.shape.clone()))
    }

    /// Gives up what this process makes of an array: whether there was anything.
    pub fn drop_array(&self, path: &str) -> Result<bool> {
        let Some(making) = self.storing()?.arrays.remove(path) else { return Ok(false) };
        for own in &making.stored {
            self.parts()?.free(&self.name_of(path, own.number))?;
        }
        Ok(true)
    }

    /// What this process has made, for the publisher.
    pub fn told(&self) -> Result<String> {
        let made = self.storing()?;
        let has_parts = made.arrays.values().any(|making| !making.stored.is_empty());
        // The node may be another member than when the parts were made.
        let holder = if has_parts { Some(self.cluster.own_holder_now()?) } else { None };
        let share = |making: &Making| Share {
            dtype: dtype::text_of(&making.dtype),
            shape: making.shape.clone(),
            is_whole: making.is_whole,
            attrs: making.attrs.clone(),
            boxes: making.stored.iter().map(|own| own.shape.clone()).collect(),
        };
        let shares = made.arrays.iter().map(|(path, own)| (path.clone(), share(own))).collect();
        Ok(encoded(&Told { holder, shares }))
    }

    /// As the publisher: the plan for what all processes have told, in the order of their places: a
    /// line for each.
    pub fn plan(&self, told: &[&str]) -> Result<String> {
        let told = read_all(told)?;
        let mut arrays = gathered(&told)?;
        let paths: Vec<&str> = arrays.keys().copied().collect();
        if paths.is_empty() {
            return Ok(lines(&vec![Numbers::new(); told.len()]));
        }
        self.check_maker(&paths)?;
        let former = self.former(&paths)?;
        // An array that is there, and of which nobody has stored anything, stays as it is.
        arrays.retain(|path, shares| {
            shares.iter().any(|(_, share)| !share.boxes.is_empty())
                || !former.get(*path).is_some_and(|former| is_like(former, shares))
        });
        let mut plan: Vec<Numbers> = told.iter().map(|_| Numbers::new()).collect();
        let mut manifests = Vec::new();
        for (path, shares) in &arrays {
            let numbers = numbered(path, shares)?;
            for (process, first) in &numbers {
                plan[*process].insert((*path).to_owned(), *first);
            }
            manifests.push((*path, self.manifest(path, shares, &numbers, &told, None)?));
        }
        for (path, manifest) in &manifests {
            Cluster::check(&[(*path, manifest)])?;
            if let Some(former) = former.get(*path) {
                check_former(path, former, manifest, chosen_of(&arrays[path]).is_some())?;
            }
        }
        let uuid = |path: &str| former.get(path).map(|former| former.uuid.clone());
        *lock(&self.former) =
            manifests.iter().map(|(path, _)| ((*path).to_owned(), uuid(path))).collect();
        Ok(lines(&plan))
    }

    /// The manifests that there are of these names. A name below a group of the cluster is refused.
    fn former(&self, paths: &[&str]) -> Result<HashMap<String, Manifest>> {
        let mut wanted: Vec<&str> = paths.to_vec();
        for path in paths {
            let above = path.char_indices().filter(|(_, sign)| *sign == '/');
            wanted.extend(above.map(|(at, _)| &path[..at]));
        }
        wanted.sort_unstable();
        wanted.dedup();
        let mut found = HashMap::new();
        for some in wanted.chunks(NAMES_MOST) {
            for (path, there) in some.iter().zip(self.cluster.look_up_within(some)?) {
                let Some((manifest, _)) = there else { continue };
                if manifest.array().is_none()
                    && let Some(below) =
                        paths.iter().find(|own| own.starts_with(&format!("{path}/")))
                {
                    return Err(Error::Store(StoreError::new(
                        Kind::Exists,
                        format!(
                            "{below:?} is below {path:?}, a group of the cluster, whose members \
                             are put one by one: take a name beside it"
                        ),
                    )));
                }
                found.insert((*path).to_owned(), manifest);
            }
        }
        Ok(found)
    }

    /// Refuses to go on once the publisher's lease has ended: its parts may have been given back.
    fn check_maker(&self, paths: &[&str]) -> Result<()> {
        if self.cluster.maker()? == self.token.maker {
            return Ok(());
        }
        Err(Error::Fenced(format!(
            "{paths:?} is not published: the process that publishes was cut off for so long that \
             the parts may have been given back; store them again"
        )))
    }

    /// Gives this process's parts the numbers of its line of the plan, and seals them: what they
    /// sum up to.
    pub fn seal(&self, line: &str) -> Result<String> {
        let numbers: Numbers = decoded("a line of a plan", line)?;
        let mut made = self.storing()?;
        made.stage = Stage::Sealed;
        let mut sums = Sums::new();
        for (path, making) in &mut made.arrays {
            let Some(first) = numbers.get(path).copied().flatten() else {
                for own in &making.stored {
                    self.parts()?.free(&self.name_of(path, own.number))?;
                }
                making.stored.clear();
                continue;
            };
            let mut own_sums = Vec::with_capacity(making.stored.len());
            for (own, number) in making.stored.iter_mut().zip(first..) {
                let (from, to) = (self.name_of(path, own.number), self.name_of(path, number));
                let done = self.parts()?.renumber(&from, &to);
                done.map_err(|error| given_back(path, error))?;
                own.number = number;
                own_sums.push(self.parts()?.seal(&to)?);
            }
            sums.insert(path.clone(), own_sums);
        }
        Ok(encoded(&sums))
    }

    /// As the publisher: publishes what was planned, and is sealed. Names are published in as few
    /// transactions as there can be; after an error some may be there.
    pub fn publish(&self, told: &[&str], plan: &str, sealed: &[&str]) -> Result<()> {
        let _operation = operation!(DEBUG, "cluster.publish-together", ranks = told.len());
        let told = read_all(told)?;
        let plan: Vec<Numbers> =
            plan.lines().map(|line| decoded("a line of a plan", line)).collect::<Result<_>>()?;
        let sealed: Vec<Sums> = (sealed.iter())
            .map(|text| decoded("what parts sum up to", text))
            .collect::<Result<_>>()?;
        if plan.len() != told.len() || sealed.len() != told.len() {
            return Err(Error::Argument(format!(
                "{} processes have told what they have made, the plan has lines for {}, and {} \
                 have sealed: give all texts of each",
                told.len(),
                plan.len(),
                sealed.len()
            )));
        }
        let mut manifests = Vec::new();
        for (path, shares) in &gathered(&told)? {
            if !lock(&self.former).contains_key(*path) {
                continue;
            }
            let numbers: Vec<(usize, Option<u32>)> = (shares.iter())
                .map(|(process, _)| (*process, plan[*process].get(*path).copied().flatten()))
                .collect();
            let sums = |process: usize| sealed.get(process)?.get(*path).map(Vec::as_slice);
            manifests.push((*path, self.manifest(path, shares, &numbers, &told, Some(&sums))?));
        }
        let mut batches: Vec<Vec<(&str, Manifest)>> = vec![Vec::new()];
        let mut nbytes = 0;
        for (path, manifest) in manifests {
            let (more, last) = (manifest.encode().len(), batches.last().map_or(0, Vec::len));
            if last == NAMES_MOST || (nbytes + more > BATCH_BYTES && last > 0) {
                batches.push(Vec::new());
                nbytes = 0;
            }
            nbytes += more;
            batches.last_mut().expect("there is one").push((path, manifest));
        }
        let (all, mut done) = (batches.iter().map(Vec::len).sum::<usize>(), 0);
        for batch in batches.into_iter().filter(|batch| !batch.is_empty()) {
            let count = batch.len();
            self.commit(batch).map_err(|error| {
                let before = format!("{done} of {all} names are published: ");
                if done == 0 { error } else { error.preceded_by(&before) }
            })?;
            done += count;
        }
        *lock(&self.beginning) = None;
        Ok(())
    }

    fn commit(&self, batch: Vec<(&str, Manifest)>) -> Result<()> {
        let paths: Vec<&str> = batch.iter().map(|(path, _)| *path).collect();
        self.check_maker(&paths)?;
        let mut draft = self.cluster.draft(&paths)?;
        let former = lock(&self.former);
        let is_other = |each: &&Proposal| former.get(&each.path) != Some(&each.seen_uuid);
        if let Some(other) = draft.proposals.iter().find(is_other) {
            return Err(Error::Conflict(format!(
                "{:?}: somebody else has published or removed it in between; look it up again",
                other.path
            )));
        }
        drop(former);
        for (proposal, (_, mut manifest)) in draft.proposals.iter_mut().zip(batch) {
            manifest.generation = draft.generation;
            proposal.manifest = Some(manifest);
        }
        let done = self.cluster.publish(draft);
        if let (Err(Error::Coordinator(_)), Some(own)) = (&done, &*lock(&self.beginning)) {
            // It may take effect yet: then the parts must be there.
            own.is_unknown();
        }
        done.map(drop)
    }

    /// Forgets what was published: whoever holds it has it by its name.
    pub fn end(&self) {
        lock(&self.made).arrays.clear();
        *lock(&self.beginning) = None;
    }

    /// Gives back what this process has made, and was not published.
    pub fn give_back(&self) {
        if !self.is_own() {
            return;
        }
        let (arrays, is_sealed) = {
            let mut made = lock(&self.made);
            (std::mem::take(&mut made.arrays), made.stage == Stage::Sealed)
        };
        let names = arrays.iter().flat_map(|(path, making)| {
            making.stored.iter().map(|own| self.name_of(path, own.number))
        });
        // What cannot be freed now is freed by the node, when the maker has gone. What is sealed
        // may be published after all, by whoever published: the holder knows.
        if is_sealed {
            let Ok(holder) = self.cluster.own_holder_now() else { return };
            names.for_each(|name| drop(self.cluster.give_back(&holder, &name, self.token.maker)));
        } else if let Ok(parts) = self.parts() {
            names.for_each(|name| drop(parts.free(&name)));
        }
        *lock(&self.beginning) = None;
    }

    /// The manifest of an array; sums are those of each process's parts, none before they are
    /// sealed.
    fn manifest<'s>(
        &self,
        path: &str,
        shares: &[(usize, &Share)],
        numbers: &[(usize, Option<u32>)],
        told: &[Told],
        sums: Option<&dyn Fn(usize) -> Option<&'s [u64]>>,
    ) -> Result<Manifest> {
        let mut holders: Vec<Holder> = Vec::new();
        let mut parts: Vec<(u32, Part)> = Vec::new();
        for ((process, share), (_, first)) in shares.iter().zip(numbers) {
            let Some(first) = first else { continue };
            let missing =
                || Error::Argument(format!("process {process} has not told all of its {path:?}"));
            let holder = told[*process].holder.as_ref().ok_or_else(missing)?;
            let at = holders.iter().position(|own| own == holder).unwrap_or_else(|| {
                holders.push(holder.clone());
                holders.len() - 1
            });
            let own = match sums {
                None => None,
                Some(sums) => Some(sums(*process).ok_or_else(missing)?),
            };
            if own.is_some_and(|own| own.len() != share.boxes.len()) {
                return Err(missing());
            }
            for (number, shape) in share.boxes.iter().enumerate() {
                let sum = own.map_or(u64::MAX, |own| own[number]);
                parts.push((first + number as u32, shape.part(at as u32, sum)));
            }
        }
        parts.sort_by_key(|(number, _)| *number);
        let (dtype, shape) = described(path, shares)?;
        let attrs = (shares.iter()).map(|(_, share)| &share.attrs).find(|own| !own.is_empty());
        let boxes = Boxes {
            dtype: dtype.to_owned(),
            shape: shape.to_vec(),
            attrs: attrs.cloned().unwrap_or_default(),
            sealed: true,
            replicas: 1,
            parts: parts.into_iter().map(|(_, part)| part).collect(),
            ..Boxes::default()
        };
        let uuid = self.token.uuid_of(path);
        Ok(Manifest { uuid, generation: 0, holders, content: Content::Array(boxes) })
    }
}

impl Drop for Together {
    fn drop(&mut self) {
        // What is sealed may be published: then its holder knows whether it has a name.
        if lock(&self.made).stage == Stage::Stores {
            self.give_back();
        }
    }
}

impl Making {
    fn find(&mut self, number: u32) -> Option<&mut Stored> {
        self.stored.iter_mut().find(|own| own.number == number)
    }

    /// A number that no part of it has had, of 14 bits.
    fn next(&mut self, path: &str) -> Result<u32> {
        let number = self.next;
        if number as usize >= PARTS_MOST {
            return Err(Error::Argument(format!(
                "{path:?} has {PARTS_MOST} boxes of this process, and no array has more parts: \
                 store larger ones"
            )));
        }
        self.next += 1;
        Ok(number)
    }

    /// The part that a box is written into; none where it is a new one.
    fn place_for(&self, path: &str, shape: &Shape) -> Result<Option<&Stored>> {
        let Some(own) = self.stored.iter().find(|own| own.shape.meets(shape)) else {
            return Ok(None);
        };
        if !own.is_there {
            let why = format!("{path:?}: another thread stores this box at the moment");
            return Err(Error::Store(StoreError::new(Kind::Busy, why)));
        }
        if own.shape.covers(shape) {
            return Ok(Some(own));
        }
        let Shape { offsets, counts } = &own.shape;
        Err(Error::Argument(format!(
            "{path:?}: the box at {:?} of counts {:?} is partly over one that this process has \
             stored, at {offsets:?} of counts {counts:?}: store that one again, or boxes within it",
            shape.offsets, shape.counts
        )))
    }
}

fn making_of<'m>(made: &'m mut Made, path: &str, dtype: &DType) -> Result<&'m mut Making> {
    check_path(path)?;
    let making = made.arrays.entry(path.to_owned()).or_insert_with(|| Making {
        dtype: dtype.clone(),
        shape: None,
        is_whole: false,
        attrs: serde_json::Map::new(),
        stored: Vec::new(),
        next: 0,
    });
    check_dtype(path, &making.dtype, dtype)?;
    Ok(making)
}

fn check_path(path: &str) -> Result<()> {
    let is_step =
        |step: &str| !step.is_empty() && step != "." && step != ".." && !step.contains('\0');
    if path.split('/').all(is_step) {
        return Ok(());
    }
    Err(Error::Store(StoreError::new(
        Kind::InvalidName,
        format!("{path:?} is no name: give steps with / between them, such as \"run/T\""),
    )))
}

fn check_dtype(path: &str, own: &DType, given: &DType) -> Result<()> {
    if own == given {
        return Ok(());
    }
    Err(Error::Argument(format!(
        "{path:?}: what is stored is {}, and {} was asked for",
        own.text(),
        given.text()
    )))
}

fn check_nbytes(path: &str, dtype: &DType, counts: &[u64], data: &[u8]) -> Result<()> {
    let items = counts.iter().try_fold(1_u64, |all, count| all.checked_mul(*count));
    let nbytes = items.and_then(|items| items.checked_mul(dtype.itemsize()));
    if nbytes == Some(data.len() as u64) {
        return Ok(());
    }
    let (dtype, given) = (dtype.text(), data.len());
    Err(Error::Argument(format!("{path:?}: {counts:?} items of {dtype} are not {given} bytes")))
}

fn check_within(path: &str, shape: Option<&[u64]>, own: &Shape) -> Result<()> {
    let Shape { offsets, counts } = own;
    let fits = offsets.len() == counts.len()
        && offsets.iter().zip(counts).all(|(at, n)| at.checked_add(*n).is_some())
        && shape.is_none_or(|shape| {
            shape.len() == counts.len()
                && (offsets.iter().zip(counts).zip(shape)).all(|((at, n), all)| at + n <= *all)
        });
    if fits {
        return Ok(());
    }
    let dims = shape.map_or_else(String::new, |shape| format!(" of dims {shape:?}"));
    Err(Error::Argument(format!(
        "{path:?}: the box at {offsets:?} of counts {counts:?} is not within the array{dims}"
    )))
}

/// What it means that a part of this process is not there any more.
fn given_back(path: &str, error: StoreError) -> Error {
    if error.kind() != Kind::NotFound {
        return error.into();
    }
    Error::Fenced(format!(
        "{path:?}: what this process has stored was given back, since the process that publishes \
         was cut off for longer than its lease, or has ended: store it again"
    ))
}
