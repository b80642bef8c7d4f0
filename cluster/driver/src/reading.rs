//! Reading: parts are fetched from their holders, and go where they are wanted.
//!
//! A part that is wanted as a whole, and whose place is in one piece, is fetched right into it.

use std::collections::VecDeque;
use std::ops::Range;

use engram_base::error::{Error as StoreError, Kind};
use engram_base::slab::Slab;
use engram_parts::{Looked, PartName, dtype};
use engram_protocol::clock::Moment;
use engram_protocol::coordinator::Revision;
use engram_protocol::manifest::{Boxes, Holder, Manifest, Part};
use engram_protocol::map::{Map, Standing};
use engram_protocol::read::{Failure, Fetch, Fetched, Read, Step, Wanted};
use engram_protocol::{Action, Rules};
use engram_wire::{Error as WireError, Pull};

use crate::clock::now;
use crate::cluster::{Cluster, LOOK_EVERY};
use crate::error::{Error, Result};

/// Parts that are fetched at once.
const FETCHES: usize = 8;

/// The bytes of a part that was read.
pub enum GotPart {
    /// They lie in the pool of this host's node.
    Here(Looked),
    /// They were fetched.
    Came(Vec<u8>),
    /// They were fetched to their place.
    InPlace,
}

/// Where parts go that are read.
pub trait Sink {
    /// Memory for parts that are fetched right to their place: one for each of these, or none. What
    /// it holds counts only once the part is taken.
    fn places(&mut self, manifest: &Manifest, parts: &[u32]) -> Result<Vec<Option<&mut [u8]>>>;

    /// Takes a part.
    fn take(&mut self, manifest: &Manifest, part: u32, got: &GotPart) -> Result<()>;
}

impl Cluster {
    /// Reads a box of an array into memory of its shape. What no part covers is fill. On an error
    /// the memory has anything.
    pub fn load(&self, path: &str, slab: &Slab, out: &mut [u8]) -> Result<(Manifest, Revision)> {
        let wanted =
            Wanted::Box { offsets: slab.offsets().to_vec(), counts: slab.counts().to_vec() };
        let mut copy = BoxCopy { slab, item: 0, out, filled: None };
        let (manifest, modified) = self.read(path, &wanted, &mut copy)?;
        if manifest.array().is_none() {
            return Err(Error::Argument(format!("{path:?} is a subtree, and no array")));
        }
        // No part covers anything of it.
        copy.begin(&manifest)?;
        Ok((manifest, modified))
    }

    /// Reads parts of a name, each given to the sink as it comes. Where the name is replaced
    /// meanwhile, it begins anew with other parts, of another manifest.
    ///
    /// A node that is back, and has yet to enter its parts, is waited for until the deadline.
    pub fn read(
        &self,
        path: &str,
        wanted: &Wanted,
        sink: &mut dyn Sink,
    ) -> Result<(Manifest, Revision)> {
        let deadline = now() + self.deadline;
        loop {
            let (map, why) = match self.read_once(path, wanted.clone(), sink, deadline)? {
                Ok(found) => return Ok(found),
                Err(failed) => failed,
            };
            let is_back = |holder: &Holder| {
                matches!(map.standing(holder, Rules::ALL), Standing::Returning(_))
            };
            let waits = matches!(&why, Failure::Away(who) if who.iter().all(is_back));
            if !waits || now() >= deadline {
                return Err(self.failure(path, &map, why));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Reads by the map as it is: what was read, or why it cannot be, with the map by then.
    fn read_once(
        &self,
        path: &str,
        wanted: Wanted,
        sink: &mut dyn Sink,
        deadline: Moment,
    ) -> Result<std::result::Result<(Manifest, Revision), (Map, Failure)>> {
        let own = self.own_node().map(str::to_owned);
        let mut machine =
            Read::new(&self.keys, path, wanted, own, self.map(), deadline, Rules::ALL);
        let mut left: VecDeque<Action<Step>> = machine.start(now()).into();
        let mut wake = deadline;
        let mut fetches: Vec<Fetch> = Vec::new();
        let end = loop {
            match left.pop_front() {
                Some(Action::Ask { token, request }) => {
                    let reply = self.coordinator.answer(&request);
                    left.extend(machine.reply(now(), token, reply));
                }
                Some(Action::Wake(at)) => wake = at,
                Some(Action::Own(Step::Suspect { node, member })) => self.suspect(&node, member),
                // What the coordinator is asked comes first: it may change what is fetched.
                Some(Action::Own(Step::Fetch(fetch))) => fetches.push(fetch),
                Some(Action::Own(Step::Done { manifest, modified })) => {
                    break Ok((*manifest, modified));
                }
                Some(Action::Own(Step::Failed(why))) => break Err(why),
                None if fetches.is_empty() => {
                    std::thread::sleep(wake - now());
                    left.extend(machine.tick(now()));
                }
                None => {
                    let Some(manifest) = machine.manifest().cloned() else {
                        fetches.clear();
                        continue;
                    };
                    // The name was looked up again since: nobody waits for parts of another one.
                    fetches.retain(|fetch| manifest.parts_uuid() == fetch.uuid);
                    // As many as run at once: what they bring is taken before others begin.
                    let asked: Vec<Fetch> = fetches.drain(..fetches.len().min(FETCHES)).collect();
                    for (attempt, end) in self.fetch_all(&asked, &manifest, sink, deadline)? {
                        left.extend(machine.fetched(now(), attempt, end));
                    }
                }
            }
        };
        let map = machine.into_map();
        self.learn(&map);
        Ok(end.map_err(|why| (map, why)))
    }

    /// Fetches parts, several at once, and has them taken.
    fn fetch_all(
        &self,
        fetches: &[Fetch],
        manifest: &Manifest,
        sink: &mut dyn Sink,
        deadline: Moment,
    ) -> Result<Vec<(u64, Fetched)>> {
        let numbers: Vec<u32> = fetches.iter().map(|fetch| fetch.part).collect();
        let places = sink.places(manifest, &numbers)?;
        let one = |fetch: &Fetch, place| self.fetch(fetch, manifest, place, deadline);
        let got: Vec<Result<GotPart>> = if let [only] = fetches {
            places.into_iter().map(|place| one(only, place)).collect()
        } else {
            std::thread::scope(|scope| {
                let run = |(fetch, place)| scope.spawn(move || one(fetch, place));
                let running: Vec<_> = fetches.iter().zip(places).map(run).collect();
                let ended = || Error::NodeAway("a thread has ended".to_owned());
                running.into_iter().map(|one| one.join().unwrap_or_else(|_| Err(ended()))).collect()
            })
        };
        let mut ends = Vec::with_capacity(fetches.len());
        for (fetch, got) in fetches.iter().zip(got) {
            let end = match got {
                Ok(got) => {
                    sink.take(manifest, fetch.part, &got)?;
                    Fetched::Whole
                }
                Err(Error::NotFound(_)) => Fetched::NotThere,
                Err(Error::Corrupt(_)) => Fetched::Differs,
                Err(_) => Fetched::Failed,
            };
            ends.push((fetch.attempt, end));
        }
        Ok(ends)
    }

    /// Fetches one part: in place if it lies here.
    fn fetch(
        &self,
        fetch: &Fetch,
        manifest: &Manifest,
        place: Option<&mut [u8]>,
        deadline: Moment,
    ) -> Result<GotPart> {
        let missing = || Error::NotFound(format!("part {} of {}", fetch.part, fetch.uuid));
        if let Some(local) = self.local_of(&fetch.node) {
            let name = PartName { uuid: fetch.uuid.clone(), part: fetch.part };
            let bytes = local.parts.bytes(&name)?;
            return bytes.map(GotPart::Here).ok_or_else(missing);
        }
        let boxes = manifest.array().ok_or_else(missing)?;
        let part = boxes.parts.get(fetch.part as usize).ok_or_else(missing)?;
        let nbytes = nbytes_of(boxes, part)? as usize;
        let mut own = Vec::new();
        let (into, is_placed) = match place {
            Some(place) if place.len() == nbytes => (place, true),
            _ => {
                own.try_reserve_exact(nbytes).map_err(|_| {
                    Error::Argument(format!("there is no memory for a part of {nbytes} bytes"))
                })?;
                own.resize(nbytes, 0);
                (own.as_mut_slice(), false)
            }
        };
        let target = format!("/parts/{}/{}?member={:x}", fetch.uuid, fetch.part, fetch.member);
        let how = Pull {
            etag: Some(format!("\"{}/{}\"", fetch.uuid, fetch.part)),
            deadline: deadline - now(),
            ..Pull::default()
        };
        let go_on = &mut |_| std::ops::ControlFlow::Continue(());
        match self.wire.pull(&[&fetch.address], &target, into, &how, go_on) {
            Ok(pulled) if part.checksum.is_some_and(|sum| sum != pulled.checksum) => {
                Err(Error::Corrupt(format!("{} sent other bytes", fetch.address)))
            }
            Ok(_) if is_placed => Ok(GotPart::InPlace),
            Ok(_) => Ok(GotPart::Came(own)),
            Err(WireError::Refused { status: 404, .. } | WireError::Changed(_)) => Err(missing()),
            Err(error) => Err(Error::NodeAway(error.to_string())),
        }
    }

    fn failure(&self, path: &str, map: &Map, why: Failure) -> Error {
        match why {
            Failure::NotFound => Error::NotFound(format!("there is no {path:?} in the cluster")),
            Failure::Away(who) => Cluster::away(map, &who, &format!("{path:?}")),
            Failure::Lost(parts) => Error::PartsLost(format!(
                "parts {parts:?} of {path:?} are lost: their nodes came back without them, or were \
                 given up"
            )),
            Failure::Missing(part) => Error::Corrupt(format!(
                "part {part} of {path:?} is not at the node that its manifest names: run verify"
            )),
            Failure::Differs(part) => Error::Store(StoreError::new(
                Kind::Busy,
                format!(
                    "part {part} of {path:?} has other bytes than were published: somebody has \
                     written it since; publish it anew"
                ),
            )),
            Failure::Replaced => Error::Conflict(format!(
                "{path:?} was replaced again and again while it was read; try again"
            )),
            Failure::Group => Error::Argument(format!(
                "{path:?} is a group of the cluster, and no array: look below it by its name"
            )),
            Failure::Unreadable(why) => Error::Corrupt(format!("{path:?}: {why}")),
            Failure::Coordinator => self.no_coordinator(),
        }
    }
}

fn nbytes_of(boxes: &Boxes, part: &Part) -> Result<u64> {
    let item = dtype::of_text(&boxes.dtype)?.itemsize();
    let nbytes = part.counts.iter().try_fold(item, |all, count| all.checked_mul(*count));
    nbytes.filter(|nbytes| i64::try_from(*nbytes).is_ok()).ok_or_else(|| {
        Error::Corrupt(format!("a part of {:?} items has more than memory can have", part.counts))
    })
}

/// Parts, copied into the memory of a box.
struct BoxCopy<'a> {
    slab: &'a Slab,
    item: u64,
    out: &'a mut [u8],
    /// Of which manifest what no part covers was filled.
    filled: Option<String>,
}

impl Sink for BoxCopy<'_> {
    fn places(&mut self, manifest: &Manifest, parts: &[u32]) -> Result<Vec<Option<&mut [u8]>>> {
        self.begin(manifest)?;
        let Some(boxes) = manifest.array() else { return Ok(parts.iter().map(|_| None).collect()) };
        let mut ranges: Vec<(usize, Range<usize>)> = Vec::new();
        for (at, number) in parts.iter().enumerate() {
            ranges.extend(self.place_of(&boxes.parts[*number as usize])?.map(|range| (at, range)));
        }
        ranges.sort_by_key(|(_, range)| range.start);
        let mut places: Vec<Option<&mut [u8]>> = parts.iter().map(|_| None).collect();
        let (mut rest, mut begin) = (&mut *self.out, 0);
        for (at, range) in ranges {
            let (before, after) = std::mem::take(&mut rest).split_at_mut(range.end - begin);
            places[at] = Some(&mut before[range.start - begin..]);
            (rest, begin) = (after, range.end);
        }
        Ok(places)
    }

    fn take(&mut self, manifest: &Manifest, number: u32, got: &GotPart) -> Result<()> {
        let Some(boxes) = manifest.array() else { return Ok(()) };
        let part = &boxes.parts[number as usize];
        let (source, target) = self.common(part)?;
        // Both have the same items in the same order; runs of one may be longer than the other's.
        let mut sources = source.runs(self.item).map(|run| (run.array, run.len));
        let mut targets = target.runs(self.item).map(|run| (run.array, run.len));
        let (mut one, mut other) = (sources.next(), targets.next());
        while let (Some((from, n)), Some((to, m))) = (one, other) {
            let len = n.min(m);
            let place = &mut self.out[to as usize..(to + len) as usize];
            match got {
                GotPart::Here(bytes) => bytes.copy_out(from as usize, place),
                GotPart::Came(bytes) => {
                    place.copy_from_slice(&bytes[from as usize..][..place.len()]);
                }
                GotPart::InPlace => return Ok(()),
            }
            one = if n == len { sources.next() } else { Some((from + len, n - len)) };
            other = if m == len { targets.next() } else { Some((to + len, m - len)) };
        }
        Ok(())
    }
}

impl BoxCopy<'_> {
    /// What a part and the box have in common, as boxes of each.
    fn common(&self, part: &Part) -> Result<(Slab, Slab)> {
        let from = |dim: usize| part.offsets[dim].max(self.slab.offsets()[dim]);
        let to = |dim: usize| {
            (part.offsets[dim] + part.counts[dim])
                .min(self.slab.offsets()[dim] + self.slab.counts()[dim])
        };
        let dims = part.counts.len();
        let counts: Vec<u64> = (0..dims).map(|dim| to(dim) - from(dim)).collect();
        let within =
            |begins: &[u64]| -> Vec<u64> { (0..dims).map(|dim| from(dim) - begins[dim]).collect() };
        let source = Slab::new(&part.counts, &within(&part.offsets), &counts)?;
        let target = Slab::new(self.slab.counts(), &within(self.slab.offsets()), &counts)?;
        Ok((source, target))
    }

    /// Where a part lies in the memory, if all of it does, in one piece.
    fn place_of(&self, part: &Part) -> Result<Option<Range<usize>>> {
        let (source, target) = self.common(part)?;
        let nbytes = source.elements() * self.item;
        let mut runs = target.runs(self.item);
        let is_whole = source.counts() == part.counts && nbytes > 0;
        Ok(match (runs.next(), runs.next()) {
            (Some(run), None) if is_whole && run.len == nbytes => {
                Some(run.array as usize..(run.array + run.len) as usize)
            }
            _ => None,
        })
    }

    /// Looks at a manifest before the first of its parts comes. Memory of items that no part covers
    /// is filled.
    fn begin(&mut self, manifest: &Manifest) -> Result<()> {
        let Some(boxes) = manifest.array() else { return Ok(()) };
        if self.filled.as_deref() == Some(&manifest.uuid) {
            return Ok(());
        }
        self.item = dtype::of_text(&boxes.dtype)?.itemsize();
        let nbytes = self.slab.elements() * self.item;
        if self.out.len() as u64 != nbytes || self.slab.shape() != boxes.shape {
            return Err(Error::Argument(format!(
                "the memory has {} bytes for {:?} items of shape {:?}; the array has shape {:?} \
                 and dtype {}",
                self.out.len(),
                self.slab.counts(),
                self.slab.shape(),
                boxes.shape,
                boxes.dtype
            )));
        }
        self.filled = Some(manifest.uuid.clone());
        let mut covered = 0;
        let (offsets, counts) = (self.slab.offsets(), self.slab.counts());
        for part in boxes.parts.iter().filter(|part| part.overlaps(offsets, counts)) {
            covered += self.common(part)?.0.elements();
        }
        match &boxes.fill {
            _ if covered == self.slab.elements() => {}
            Some(fill) if fill.len() as u64 == self.item => {
                self.out.chunks_exact_mut(fill.len()).for_each(|item| item.copy_from_slice(fill));
            }
            _ => self.out.fill(0),
        }
        Ok(())
    }
}
