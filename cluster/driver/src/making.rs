//! Making: parts at their holders, before a manifest names them and where it is to seal them.
//!
//! What lies on this host's node is made in place. Another node is sent a part's bytes, or what
//! each of its items is to be.

use engram_parts::{NewPart, PartName, checksum_of, dtype};
use engram_protocol::Rules;
use engram_protocol::coordinator::LeaseId;
use engram_protocol::manifest::Holder;
use engram_protocol::map::Standing;
use engram_wire::{Answer, Ask, Headers, Method, target};
use serde_json::Value;

use crate::cluster::Cluster;
use crate::error::{Error, Result};

/// The most bytes of an answer but for values, which are pulled.
const ANSWER_MOST: u64 = 1 << 30;

impl Cluster {
    /// Makes a part at a holder: in place if it is this host's node, else it is sent there. The
    /// checksum is that of its bytes.
    pub fn make_part(&self, holder: &Holder, new: &NewPart, data: &[u8]) -> Result<u64> {
        let sum = checksum_of(data);
        // What another maker has left there only the node server can judge.
        if let Some(local) = self.local_of(&holder.node)
            && local.parts.mark(&new.name)?.is_none()
        {
            let mut sealed = new.clone();
            sealed.mark.checksum = Some(sum);
            local.parts.put(&sealed, data)?;
            return Ok(sum);
        }
        let target = format!("{}&checksum={sum:x}", target_of(holder, new));
        self.ask_holder(holder, Method::Put, &target, data)?;
        Ok(sum)
    }

    /// Makes a part whose items all have these bytes, zeros without any. It can be written in
    /// place.
    pub fn fill_part(&self, holder: &Holder, new: &NewPart, item: &[u8]) -> Result<()> {
        if let Some(local) = self.local_of(&holder.node) {
            return Ok(local.parts.fill(new, item)?);
        }
        let target = format!("{}&filled=1", target_of(holder, new));
        self.ask_holder(holder, Method::Put, &target, item).map(drop)
    }

    /// Has a holder sum up a part, which nobody writes from then on.
    pub fn seal_part(&self, holder: &Holder, name: &PartName) -> Result<u64> {
        if let Some(local) = self.local_of(&holder.node) {
            return Ok(local.parts.seal(name)?);
        }
        let PartName { uuid, part } = name;
        let target = format!("/parts/{uuid}/{part}/seal?member={:x}", holder.member);
        let answer = self.ask_holder(holder, Method::Put, &target, &[])?;
        let told: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        told["checksum"].as_u64().ok_or_else(|| {
            Error::Corrupt(format!("{} tells no checksum of part {part} of {uuid}", holder.node))
        })
    }

    /// Gives back a part that its maker does not publish. Its holder is asked, also where the part
    /// lies here: the holder refuses what is published after all, and frees nothing that another
    /// makes meanwhile.
    pub fn give_back(&self, holder: &Holder, name: &PartName, maker: LeaseId) -> Result<()> {
        let PartName { uuid, part } = name;
        let target = format!("/parts/{uuid}/{part}?maker={maker:x}");
        self.ask_holder(holder, Method::Delete, &target, &[]).map(drop)
    }

    /// Asks a holder for something; what it refuses is told as it says it. Where it does not
    /// answer, or says that it is no member, it is looked at, and struck if its lease has ended:
    /// one that is cut off from the coordinator cannot leave by itself.
    pub(crate) fn ask_holder(
        &self,
        holder: &Holder,
        method: Method,
        target: &str,
        body: &[u8],
    ) -> Result<Answer> {
        let map = self.map();
        let Standing::Serving(entry) = map.standing(holder, Rules::ALL) else {
            return Err(Cluster::away(&map, std::slice::from_ref(holder), "what is asked for"));
        };
        let ask = Ask { deadline: self.deadline, most_bytes: ANSWER_MOST, ..Ask::default() };
        let address = &entry.identity.address;
        match self.wire.request(method, address, target, &Headers::default(), body, &ask) {
            Ok(answer) if answer.status >= 400 => {
                self.suspect_if_fenced(holder, &answer);
                Err(refusal(&answer, &entry.identity.host))
            }
            Ok(answer) => Ok(answer),
            Err(error) => {
                if error.is_of_the_way() {
                    self.suspect(&holder.node, holder.member);
                }
                Err(error.into())
            }
        }
    }

    /// Looks at a holder that answers that it is no member, and strikes it if its lease has ended.
    pub(crate) fn suspect_if_fenced(&self, holder: &Holder, answer: &Answer) {
        if matches!(answer.headers.get("Engram-Error"), Some("FencedError" | "NodeAwayError")) {
            self.suspect(&holder.node, holder.member);
        }
    }
}

/// The error that a node server has answered with.
pub(crate) fn refusal(answer: &Answer, host: &str) -> Error {
    let said = String::from_utf8_lossy(&answer.body);
    let text = format!("{host}: {}", said.trim_end());
    let class = answer.headers.get("Engram-Error").unwrap_or_default();
    match Error::of_class(class, text.clone()) {
        // Of a holder it means that the holder cannot be had.
        None | Some(Error::Fenced(_) | Error::Coordinator(_)) => Error::NodeAway(text),
        Some(error) => error,
    }
}

/// Where a part is made at a holder, and as what.
fn target_of(holder: &Holder, new: &NewPart) -> String {
    let (PartName { uuid, part }, mark) = (&new.name, &new.mark);
    format!(
        "/parts/{uuid}/{part}?path={}&maker={:x}&begun={}&dtype={}&offsets={}&counts={}\
         &member={:x}",
        target::encode_query(&mark.path),
        mark.maker,
        mark.begun,
        target::encode_query(&dtype::text_of(&new.dtype)),
        listed(&mark.offsets),
        listed(&new.counts),
        holder.member
    )
}

fn listed(numbers: &[u64]) -> String {
    numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(",")
}
