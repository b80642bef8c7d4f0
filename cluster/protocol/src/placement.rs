//! Where names and parts go.
//!
//! *Names are hashed*: weighted rendezvous. Each pair of a name and a node has a number that only
//! the two decide, and a name is at home where that number is best. So a node that goes takes its
//! own names with it, each to the node that was second, and moves no other. *Parts lie in order*:
//! part `i` of `n` on node `i * nodes / n`, since few parts that were hashed would leave nodes
//! idle.

use twox_hash::XxHash3_64;

/// Nodes among which names are placed.
#[derive(Clone, Debug)]
pub struct Placement {
    seeds: Vec<u64>,
    /// Empty where all are equal.
    weights: Vec<f64>,
}

/// Spreads the bits of a number over all of it.
fn mixed(mut x: u64) -> u64 {
    x ^= x >> 30;
    x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^= x >> 27;
    x = x.wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// How far a name is from a node of this weight: an exponentially distributed number, so that a
/// node is nearest in proportion to its weight.
#[allow(clippy::cast_precision_loss)] // 53 bits fit
fn distance(number: u64, weight: f64) -> f64 {
    let uniform = ((number >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    -uniform.ln() / weight
}

impl Placement {
    /// Placement among nodes with these uuids and weights.
    pub fn new<'n>(nodes: impl Iterator<Item = (&'n str, f64)>) -> Placement {
        let (seeds, weights): (Vec<u64>, Vec<f64>) =
            nodes.map(|(node, weight)| (XxHash3_64::oneshot(node.as_bytes()), weight)).unzip();
        let equal = weights.windows(2).all(|pair| pair[0].total_cmp(&pair[1]).is_eq());
        Placement { seeds, weights: if equal { Vec::new() } else { weights } }
    }

    /// The place of the node at which a name is at home; none where there are no nodes.
    pub fn home(&self, name: &str) -> Option<usize> {
        let key = XxHash3_64::oneshot(name.as_bytes());
        let numbers = self.seeds.iter().map(|seed| mixed(key ^ seed)).enumerate();
        if self.weights.is_empty() {
            // Of equal weights the largest number is the nearest.
            return numbers.max_by_key(|(place, number)| (*number, *place)).map(|(place, _)| place);
        }
        numbers
            .map(|(place, number)| (place, distance(number, self.weights[place])))
            .min_by(|a, b| a.1.total_cmp(&b.1))
            .map(|(place, _)| place)
    }

    /// The places of all nodes, the nearest to the name first.
    pub fn ranked(&self, name: &str) -> Vec<usize> {
        let key = XxHash3_64::oneshot(name.as_bytes());
        let weight = |place: usize| self.weights.get(place).copied().unwrap_or(1.0);
        let mut ranked: Vec<(f64, usize)> = (self.seeds.iter().enumerate())
            .map(|(place, seed)| (distance(mixed(key ^ seed), weight(place)), place))
            .collect();
        ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
        ranked.into_iter().map(|(_, place)| place).collect()
    }
}

/// The places of the nodes of parts that lie in order: neighbours on one node, and on each as many
/// as on any other, but for one.
pub fn in_order(parts: usize, nodes: usize) -> impl Iterator<Item = usize> {
    (0..parts).map(move |part| (part as u128 * nodes as u128 / parts.max(1) as u128) as usize)
}
