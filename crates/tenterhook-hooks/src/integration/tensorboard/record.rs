//! `TFRecord` framing of event files: a length, the payload, and a checksum of each.

use std::io::{self, Read};

/// Sizes of the header (length and checksum) and the footer (checksum).
const HEAD: usize = 12;
const FOOT: usize = 4;

/// The maximum length of a record; a larger one is damaged and must not be allocated.
const MAX_LENGTH: u64 = 1 << 30;

/// The payload with its frame.
pub(super) fn framed(payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u64).to_le_bytes();
    let mut frame = Vec::with_capacity(HEAD + payload.len() + FOOT);
    frame.extend_from_slice(&length);
    frame.extend_from_slice(&masked(&length));
    frame.extend_from_slice(payload);
    frame.extend_from_slice(&masked(payload));
    frame
}

/// The next payload, or `None` if no complete frame follows: at the end, at a truncated frame, or in another format.
pub(super) fn next(file: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let Some(head) = exactly(file, HEAD as u64)? else { return Ok(None) };
    let Some((length, check)) = head.split_first_chunk::<8>() else { return Ok(None) };
    let size = u64::from_le_bytes(*length);
    if check != masked(length) || size > MAX_LENGTH {
        return Ok(None);
    }
    let Some(mut payload) = exactly(file, size + FOOT as u64)? else { return Ok(None) };
    let check = payload.split_off(payload.len() - FOOT);
    Ok((check == masked(&payload)).then_some(payload))
}

/// The size of a payload with its frame.
pub(super) fn size_of(payload: &[u8]) -> u64 {
    (HEAD + payload.len() + FOOT) as u64
}

/// This many bytes, if the file has them.
fn exactly(file: &mut impl Read, size: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    file.take(size).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 == size).then_some(bytes))
}

/// The masked checksum of the `TFRecord` format.
fn masked(bytes: &[u8]) -> [u8; 4] {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

/// CRC-32C (Castagnoli).
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

    /// All readable contents and their total size.
    fn read(mut bytes: &[u8]) -> (Vec<Vec<u8>>, u64) {
        let mut contents = Vec::new();
        while let Some(payload) = next(&mut bytes).expect("memory reads") {
            contents.push(payload);
        }
        let size = contents.iter().map(|payload| size_of(payload)).sum();
        (contents, size)
    }

    #[test]
    fn records_are_read_back_up_to_the_first_missing_or_wrong_byte() {
        let contents = [b"one".to_vec(), Vec::new(), b"three".to_vec()];
        let bytes: Vec<u8> = contents.iter().flat_map(|payload| framed(payload)).collect();
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
    fn an_impossible_length_allocates_nothing() {
        let length = u64::MAX.to_le_bytes();
        let bytes = [length.as_slice(), &masked(&length), &[0; 64]].concat();
        assert_eq!(read(&bytes), (Vec::new(), 0));
    }
}
