//! Chunked arrays of 8-byte items, and naive copies of them.

use engram::{Flush, Layout, Namespace, NewObject, Oid, Slab};

use super::{KEEP, Random, floats};

/// Codecs that are different in kind.
pub const CODECS: [&str; 5] = ["none", "lz4", "zstd:1", "shuffle+lz4", "shuffle+zstd"];

/// A chunked array to be.
pub fn chunked(shape: &[u64], chunks: &[u64], codec: &str) -> NewObject {
    let layout = Layout::Chunked { chunks: chunks.to_vec(), codec: codec.parse().expect("one") };
    NewObject { layout, ..floats(shape) }
}

/// Makes one of zeros.
pub fn grid(namespace: &Namespace, path: &str, shape: &[u64], chunks: &[u64], codec: &str) -> Oid {
    let new = chunked(shape, chunks, codec);
    namespace.create_zeroed(namespace.root(), path, &new, KEEP).expect("a chunked array")
}

/// All of an array.
pub fn whole(namespace: &Namespace, oid: Oid) -> Vec<u8> {
    let shape = namespace.object(oid).expect("it is there").shape;
    part(namespace, oid, &vec![0; shape.len()], &shape)
}

/// A box of an array.
pub fn part(namespace: &Namespace, oid: Oid, offsets: &[u64], counts: &[u64]) -> Vec<u8> {
    let mut out = vec![0xaa; counts.iter().product::<u64>() as usize * 8];
    namespace.load_slab(oid, offsets, counts, &mut out).expect("a load");
    out
}

/// Stores a box.
pub fn store(namespace: &Namespace, oid: Oid, offsets: &[u64], counts: &[u64], data: &[u8]) {
    namespace.store_slab(oid, offsets, counts, data, Flush::Once).expect("a store");
}

/// A random box of a shape.
pub fn any_box(random: &mut Random, shape: &[u64]) -> (Vec<u64>, Vec<u64>) {
    let one = |length: &u64| {
        let offset = random.below(length + 1);
        (offset, random.below(length - offset + 1))
    };
    shape.iter().map(one).unzip()
}

/// So many words, which compress in some places.
pub fn words(random: &mut Random, count: u64) -> Vec<u8> {
    let kind = random.below(3);
    let word = |at: u64| match kind {
        0 => at / 5,
        1 => 0,
        _ => random.next(),
    };
    (0..count).map(word).collect::<Vec<_>>().into_iter().flat_map(u64::to_le_bytes).collect()
}

/// A naive array.
#[derive(Clone, PartialEq)]
pub struct Naive {
    pub shape: Vec<u64>,
    pub bytes: Vec<u8>,
}

impl Naive {
    pub fn zeros(shape: &[u64]) -> Self {
        let count = shape.iter().product::<u64>() as usize;
        Naive { shape: shape.to_vec(), bytes: vec![0; count * 8] }
    }

    pub fn store(&mut self, offsets: &[u64], counts: &[u64], data: &[u8]) {
        for run in Slab::new(&self.shape, offsets, counts).expect("a box").runs(8) {
            let from = &data[run.buffer as usize..][..run.len as usize];
            self.bytes[run.array as usize..][..run.len as usize].copy_from_slice(from);
        }
    }

    pub fn part(&self, offsets: &[u64], counts: &[u64]) -> Vec<u8> {
        let slab = Slab::new(&self.shape, offsets, counts).expect("a box");
        let runs = slab.runs(8);
        runs.flat_map(|run| self.bytes[run.array as usize..][..run.len as usize].to_vec()).collect()
    }

    pub fn resize(&mut self, shape: &[u64]) {
        let kept: Vec<u64> = shape.iter().zip(&self.shape).map(|(a, b)| *a.min(b)).collect();
        let origin = vec![0; shape.len()];
        let data = self.part(&origin, &kept);
        *self = Naive::zeros(shape);
        self.store(&origin, &kept, &data);
    }
}
