//! A bounce buffer: memory between a socket and a place that the kernel would fill slowly.
//!
//! The kernel copies with `rep movsb`, and so may the C library. Where a place begins up to 63
//! bytes behind its source, counted within a page, the processor takes each load for one that waits
//! for the store before it, and the copy takes three times as long. A part begins at a page of its
//! holder, and `malloc` gives large memory 16 bytes behind the beginning of a page, so what is rare
//! elsewhere is the rule here. Such bytes are received into a buffer that stays in the processor's
//! cache and that is half a page away from both: two fast copies take less than the slow one.

use crate::error::Result;

/// A page, within which distances count.
const PAGE: usize = 4096;
/// From this distance on, the kernel copies at full speed.
const FAR: usize = 64;

/// Memory that lies half a page away from what it receives, counted within a page.
pub(crate) struct Bounce {
    memory: Vec<u8>,
    /// How much is received at once.
    most: usize,
}

impl Bounce {
    /// A buffer, if a place needs one for bytes that their holder has `from` bytes behind the
    /// beginning of a page.
    pub(crate) fn needed(place: &[u8], from: u64, most: usize) -> Option<Bounce> {
        let ahead = place.as_ptr().addr().wrapping_sub(from as usize) % PAGE;
        let needed = (1..FAR).contains(&ahead) && place.len() >= PAGE;
        needed.then(|| Bounce { memory: vec![0; most + 2 * PAGE], most })
    }

    /// Receives into a place, by way of the buffer, what the holder has `from` bytes behind the
    /// beginning of a page.
    pub(crate) fn receive(
        &mut self,
        place: &mut [u8],
        from: u64,
        receive: impl FnOnce(&mut [u8]) -> Result<usize>,
    ) -> Result<usize> {
        let to_page = self.memory.as_ptr().addr().wrapping_neg() % PAGE;
        let begin = to_page + (from as usize + PAGE / 2) % PAGE;
        let buffer = &mut self.memory[begin..][..place.len().min(self.most)];
        let len = receive(buffer)?;
        place[..len].copy_from_slice(&buffer[..len]);
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_for_places_just_behind_their_source() {
        let memory = vec![0_u8; 4 * PAGE];
        let page = memory.as_ptr().addr().wrapping_neg() % PAGE;
        let needed = |at: usize, from| Bounce::needed(&memory[page + at..], from, PAGE).is_some();
        assert!(!needed(0, 0) && needed(1, 0) && needed(16, 0) && needed(63, 0) && !needed(64, 0));
        assert!(!needed(16, 16) && needed(80, 64) && needed(0, PAGE as u64 - 8) && !needed(0, 8));
        assert!(Bounce::needed(&memory[page + 16..][..PAGE - 1], 0, PAGE).is_none());
    }

    #[test]
    fn bytes_lie_in_the_buffer_half_a_page_from_their_source_and_all_arrive() {
        let mut place = vec![0_u8; 3 * PAGE];
        let mut bounce = Bounce { memory: vec![0; 3 * PAGE], most: PAGE };
        for (from, len) in [(0, PAGE), (5, 100), (PAGE as u64 - 1, PAGE)] {
            let got = bounce.receive(&mut place, from, |buffer| {
                let away = buffer.as_ptr().addr().wrapping_sub(from as usize);
                assert_eq!(away % PAGE, PAGE / 2);
                assert_eq!(buffer.len(), PAGE);
                buffer[..len].fill(len as u8 + 1);
                Ok(len)
            });
            assert_eq!(got, Ok(len));
            assert!(place[..len].iter().all(|byte| *byte == len as u8 + 1));
        }
    }
}
