//! TFRecords, the frames of an event file: a length, what it is about, and a checksum of each.

use std::io::{self, Read};

/// What a frame has beside its content: the length and two checksums.
const HEAD: usize = 12;
const FOOT: usize = 4;

/// No event of ours is nearly as long. A length beyond it is none, and nobody should make room for it.
const LONGEST: u64 = 1 << 30;

/// The content with its frame around it.
pub(super) fn framed(content: &[u8]) -> Vec<u8> {
    let length = (content.len() as u64).to_le_bytes();
    let mut frame = Vec::with_capacity(HEAD + content.len() + FOOT);
    frame.extend_from_slice(&length);
    frame.extend_from_slice(&masked(&length));
    frame.extend_from_slice(content);
    frame.extend_from_slice(&masked(content));
    frame
}

/// The next content, or `None` where no whole frame follows: at the end, in half a frame that a killed run left, or
/// in something else altogether. What is behind it nobody could read.
pub(super) fn next(file: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let Some(head) = exactly(file, HEAD as u64)? else { return Ok(None) };
    let Some((length, check)) = head.split_first_chunk::<8>() else { return Ok(None) };
    let size = u64::from_le_bytes(*length);
    if check != masked(length) || size > LONGEST {
        return Ok(None);
    }
    let Some(mut content) = exactly(file, size + FOOT as u64)? else { return Ok(None) };
    let check = content.split_off(content.len() - FOOT);
    Ok((check == masked(&content)).then_some(content))
}

/// How many bytes a content takes up with its frame.
pub(super) fn size_of(content: &[u8]) -> u64 {
    (HEAD + content.len() + FOOT) as u64
}

/// So many bytes, if there are.
fn exactly(file: &mut impl Read, size: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    file.take(size).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 == size).then_some(bytes))
}

/// The checksum as it is written down: turned and shifted, since checksums of checksums are weak.
fn masked(bytes: &[u8]) -> [u8; 4] {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

/// CRC-32C: the polynomial of Castagnoli, bits reversed.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc: u32, byte| TABLE[usize::from(crc.to_le_bytes()[0] ^ byte)] ^ (crc >> 8))
}

static TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = (byte, 0);
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
            bit += 1;
        }
        table[byte as usize] = crc;
        byte += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_rfc_3720() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(&(0..32).collect::<Vec<_>>()), 0x46dd_794e);
    }

    /// All contents that can be read, and how many bytes they take up.
    fn read(mut bytes: &[u8]) -> (Vec<Vec<u8>>, u64) {
        let mut contents = Vec::new();
        while let Some(content) = next(&mut bytes).expect("memory reads") {
            contents.push(content);
        }
        let size = contents.iter().map(|content| size_of(content)).sum();
        (contents, size)
    }

    #[test]
    fn what_was_framed_is_read_back_up_to_the_first_byte_that_is_missing_or_wrong() {
        let contents = [b"one".to_vec(), Vec::new(), b"three".to_vec()];
        let bytes: Vec<u8> = contents.iter().flat_map(|content| framed(content)).collect();
        assert_eq!(read(&bytes), (contents.to_vec(), bytes.len() as u64));
        let last = bytes.len() - framed(b"three").len();
        for end in last..bytes.len() {
            assert_eq!(read(&bytes[..end]), (contents[..2].to_vec(), last as u64), "{end}");
            let mut wrong = bytes.clone();
            wrong[end] ^= 4;
            assert_eq!(read(&wrong).0, contents[..2], "{end}");
        }
    }

    #[test]
    fn a_length_that_nothing_has_takes_no_memory() {
        let length = u64::MAX.to_le_bytes();
        let bytes = [length.as_slice(), &masked(&length), &[0; 64]].concat();
        assert_eq!(read(&bytes), (Vec::new(), 0));
    }
}
