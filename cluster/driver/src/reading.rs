//! Reading: parts are fetched from their holders, and [copied](crate::box_copy) to the box.
//!
//! Of a part of which the box has at most half, only the bytes from the first to the last that it
//! has are fetched. The checksum is that of the whole part, so such bytes are not compared with it,
//! as those of a view are not.

use std::collections::{BTreeMap, VecDeque};

use engram_base::dtype::DType;
use engram_base::error::{Error as StoreError, Kind};
use engram_base::slab::Slab;
use engram_parts::PartName;
use engram_protocol::clock::Moment;
use engram_protocol::coordinator::Revision;
use engram_protocol::manifest::{Holder, Manifest};
use engram_protocol::map::{Map, Standing};
use engram_protocol::read::{Failure, Fetch, Fetched, Read, Step, Wanted};
use engram_protocol::{Action, Rules};
use engram_wire::{Error as WireError, Pull, Within};

use crate::box_copy::{BoxCopy, GotPart, Place};
use crate::clock::now;
use crate::cluster::{Cluster, LOOK_EVERY};
use crate::error::{Error, Result};

/// Parts that are fetched at once.
const FETCHES: usize = 8;

/// Why a name was not read, by which map, and what each node said that gave nothing.
struct Unread {
    map: Map,
    why: Failure,
    said: BTreeMap<String, String>,
}

impl Cluster {
    /// Reads a box of an array of this dtype into memory of its shape. What no part covers is fill.
    /// On an error the memory has anything.
    pub fn load(
        &self,
        path: &str,
        dtype: &DType,
        slab: &Slab,
        out: &mut [u8],
    ) -> Result<(Manifest, Revision)> {
        let wanted =
            Wanted::Box { offsets: slab.offsets().to_vec(), counts: slab.counts().to_vec() };
        let mut copy = BoxCopy::new(dtype, slab, out);
        let (manifest, modified) = self.read(path, &wanted, &mut copy)?;
        if manifest.array().is_none() {
            return Err(Error::Argument(format!("{path:?} is a subtree, and no array")));
        }
        // No part covers anything of it.
        copy.begin(&manifest)?;
        Ok((manifest, modified))
    }

    /// Reads parts of a name, each copied as it comes. Where the name is replaced meanwhile, it
    /// begins anew with other parts, of another manifest.
    ///
    /// A node that is back, and has yet to enter its parts, is waited for until the deadline.
    fn read(
        &self,
        path: &str,
        wanted: &Wanted,
        copy: &mut BoxCopy<'_>,
    ) -> Result<(Manifest, Revision)> {
        let deadline = now() + self.deadline;
        loop {
            let Unread { map, why, said } =
                match self.read_once(path, wanted.clone(), copy, deadline)? {
                    Ok(found) => return Ok(found),
                    Err(unread) => unread,
                };
            let is_back = |holder: &Holder| {
                matches!(map.standing(holder, Rules::ALL), Standing::Returning(_))
            };
            let waits = matches!(&why, Failure::Away(who) if who.iter().all(is_back));
            if !waits || now() >= deadline {
                return Err(self.failure(path, &map, why, &said));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Reads by the map as it is: what was read, or why it cannot be, with the map by then.
    fn read_once(
        &self,
        path: &str,
        wanted: Wanted,
        copy: &mut BoxCopy<'_>,
        deadline: Moment,
    ) -> Result<std::result::Result<(Manifest, Revision), Unread>> {
        let own = self.own_node().map(str::to_owned);
        let mut machine =
            Read::new(&self.keys, path, wanted, own, self.map(), deadline, Rules::ALL);
        let mut left: VecDeque<Action<Step>> = machine.start(now()).into();
        let mut wake = deadline;
        let mut fetches: Vec<Fetch> = Vec::new();
        let mut said = BTreeMap::new();
        let end = loop {
            match left.pop_front() {
                Some(Action::Ask { token, request }) => {
                    let reply = self.coordinator.answer(&request);
                    left.extend(machine.reply(now(), token, reply));
                }
                Some(Action::Wake(at)) => wake = at,
                Some(Action::Own(Step::Suspect { node, member })) => self.suspect(&node, member),
                // What the coordinator is asked comes first: it may change what is fetched.
                // One that is asked for again is fetched once.
                Some(Action::Own(Step::Fetch(fetch))) => {
                    fetches.retain(|earlier| earlier.part != fetch.part);
                    fetches.push(fetch);
                }
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
                    for (attempt, end) in
                        self.fetch_all(path, &asked, &manifest, copy, &mut said)?
                    {
                        if end == Fetched::Whole {
                            // The deadline is for one that gets nothing.
                            machine.go_on_until(now() + self.deadline);
                        }
                        left.extend(machine.fetched(now(), attempt, end));
                    }
                }
            }
        };
        let map = machine.into_map();
        self.learn(&map);
        Ok(end.map_err(|why| Unread { map, why, said }))
    }

    /// Fetches parts, several at once, and has them taken. What nodes say that give nothing is
    /// kept. What fails on this side (no memory, no descriptor) fails at each of them.
    fn fetch_all(
        &self,
        path: &str,
        fetches: &[Fetch],
        manifest: &Manifest,
        copy: &mut BoxCopy<'_>,
        said: &mut BTreeMap<String, String>,
    ) -> Result<Vec<(u64, Fetched)>> {
        let numbers: Vec<u32> = fetches.iter().map(|fetch| fetch.part).collect();
        let places = copy.places(manifest, &numbers)?;
        let one = |fetch: &Fetch, place| self.fetch(fetch, manifest, place);
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
                    copy.take(manifest, fetch.part, &got)
                        .map_err(|error| error.preceded_by(&format!("{path:?}: ")))?;
                    Fetched::Whole
                }
                Err(Error::NotFound(_)) => Fetched::NotThere,
                Err(Error::Corrupt(_)) => Fetched::Differs,
                Err(error) if matches!(error.kind(), Kind::Argument | Kind::Os) => {
                    return Err(error);
                }
                Err(error) => {
                    said.insert(fetch.node.clone(), error.to_string());
                    Fetched::Failed
                }
            };
            ends.push((fetch.attempt, end));
        }
        Ok(ends)
    }

    /// Fetches what is wanted of one part, or looks at it where it lies here.
    fn fetch(&self, fetch: &Fetch, manifest: &Manifest, place: Place<'_>) -> Result<GotPart> {
        let missing = || Error::NotFound(format!("part {} of {}", fetch.part, fetch.uuid));
        if let Some(local) = self.local_of(&fetch.node) {
            let name = PartName { uuid: fetch.uuid.clone(), part: fetch.part };
            let bytes = local.parts.bytes(&name)?;
            return bytes.map(GotPart::Here).ok_or_else(missing);
        }
        let boxes = manifest.array().ok_or_else(missing)?;
        let part = boxes.parts.get(fetch.part as usize).ok_or_else(missing)?;
        let Place { from, len, total, memory } = place;
        let mut own = Vec::new();
        let is_placed = memory.is_some();
        let into = if let Some(memory) = memory {
            memory
        } else {
            own.try_reserve_exact(len).map_err(|_| {
                Error::Argument(format!("there is no memory for {len} bytes of a part"))
            })?;
            own.resize(len, 0);
            own.as_mut_slice()
        };
        let target = format!("/parts/{}/{}?member={:x}", fetch.uuid, fetch.part, fetch.member);
        let is_whole = len as u64 == total;
        let sum = part.checksum.filter(|_| is_whole);
        let how = Pull {
            within: Some(Within { from, total }),
            etag: Some(format!("\"{}/{}\"", fetch.uuid, fetch.part)),
            deadline: self.patience(len),
            confirm: sum.is_none(),
            ..Pull::default()
        };
        let go_on = &mut |_| std::ops::ControlFlow::Continue(());
        match self.wire.pull(&[&fetch.address], &target, into, &how, go_on) {
            Ok(pulled) if sum.is_some_and(|sum| sum != pulled.checksum) => {
                Err(Error::Corrupt(format!("{} sent other bytes", fetch.address)))
            }
            Ok(_) if is_placed => Ok(GotPart::InPlace),
            Ok(_) => Ok(GotPart::Came { from, bytes: own }),
            // To users a holder shows what has a name, and nothing that had one.
            Err(WireError::Refused { status: 403 | 404, .. } | WireError::Changed(_)) => {
                Err(missing())
            }
            Err(error @ (WireError::Os(_) | WireError::Argument(_))) => Err(error.into()),
            Err(error) => Err(Error::NodeAway(error.to_string())),
        }
    }

    fn failure(
        &self,
        path: &str,
        map: &Map,
        why: Failure,
        said: &BTreeMap<String, String>,
    ) -> Error {
        match why {
            Failure::NotFound => Error::NotFound(format!("there is no {path:?} in the cluster")),
            Failure::Away(who) => {
                let said = who.iter().filter_map(|holder| said.get(&holder.node).cloned());
                let away = Cluster::away(map, &who, &format!("{path:?}"));
                said.fold(away, |error, why| error.followed_by(&format!(" ({why})")))
            }
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
