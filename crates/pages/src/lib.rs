//! Gives back the memory that holds code which only the start of a process needed.
//!
//! A program's code is mapped from its file in pieces of 64 KiB around whatever is called. Reading 150 flags, making a
//! certificate and greeting an API server calls a good part of everything, once; from then on all of it counts as memory of
//! a process that needs a tenth of it. The kernel would take those pages back when memory is short, but whoever looks at
//! the process, or limits it, cannot see that.
//!
//! [`release`] lets go of all code at once. What is called afterwards comes back from the page cache by itself, in pieces of 16 KiB:
//! the kernel maps no more than one mapping around a page, so that the code is divided into many.

#[cfg(target_os = "linux")]
mod maps;

/// Why nothing was given back.
#[derive(Debug, thiserror::Error)]
pub enum ReleaseError {
    /// The process cannot see what it has mapped.
    #[error("cannot read /proc/self/maps: {0}")]
    Maps(#[from] std::io::Error),
    /// The kernel refuses.
    #[error("the kernel refuses to take code back: {0}")]
    Refused(String),
}

/// Lets go of the pages of all code that is mapped from files, and says how many bytes of addresses they cover. Elsewhere
/// than on Linux nothing is done.
pub fn release() -> Result<usize, ReleaseError> {
    #[cfg(target_os = "linux")]
    return code()?.iter().map(let_go).sum();
    #[cfg(not(target_os = "linux"))]
    return Ok(0);
}

/// Code of the process, which is divided when it is first asked for. It is looked up each time: what a library had that was unloaded
/// may belong to something else by now.
#[cfg(target_os = "linux")]
fn code() -> Result<Vec<maps::Code>, ReleaseError> {
    static DIVIDED: std::sync::Once = std::sync::Once::new();
    let code = maps::Code::of_this_process()?;
    DIVIDED.call_once(|| code.iter().for_each(divide));
    Ok(code)
}

#[cfg(target_os = "linux")]
fn let_go(code: &maps::Code) -> Result<usize, ReleaseError> {
    advise(code, nix::sys::mman::MmapAdvise::MADV_DONTNEED)
        .map_err(|error| ReleaseError::Refused(error.to_string()))?;
    Ok(code.end.saturating_sub(code.start))
}

/// Divides a mapping into pieces, by a flag that every other one has. The flag leaves pieces out of core dumps, which code is not part
/// of anyway, except for the first page of a file: so the first piece does not have it. A kernel that refuses, for instance because
/// the process has too many mappings, leaves the rest as it is.
#[cfg(target_os = "linux")]
fn divide(code: &maps::Code) {
    for piece in code.pieces().skip(1).step_by(2) {
        if advise(&piece, nix::sys::mman::MmapAdvise::MADV_DONTDUMP).is_err() {
            return;
        }
    }
}

#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "the kernel's call has no safe form")]
fn advise(code: &maps::Code, advice: nix::sys::mman::MmapAdvise) -> nix::Result<()> {
    let length = code.end.saturating_sub(code.start);
    let Some(start) = std::ptr::NonNull::new(std::ptr::with_exposed_provenance_mut(code.start)) else { return Ok(()) };
    // SAFETY: the range is private, mapped from a file and was never written, so its contents are those of the file, and
    // whoever touches it again, even at this moment in another thread, gets the same bytes. What is dumped does not matter to them.
    unsafe { nix::sys::mman::madvise(start, length, advice) }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[inline(never)]
    fn busy(number: u64) -> u64 {
        (1..number).fold(1, |product, factor| product.wrapping_mul(factor) ^ factor.rotate_left(7))
    }

    #[test]
    fn code_is_mapped_in_small_pieces() {
        release().unwrap();
        let largest = |code: Vec<maps::Code>| code.iter().map(|code| code.end - code.start).max().unwrap();
        // The end of a mapping, less than a piece, belongs to the last one.
        assert!(largest(maps::Code::mappings().unwrap()) <= 2 * maps::PIECE);
    }

    #[test]
    fn code_works_as_before_after_it_was_given_back() {
        let expected = busy(1000);
        let others: Vec<_> = (0..4).map(|_| std::thread::spawn(|| (0..2000).map(|_| busy(1000)).max())).collect();
        for _ in 0..50 {
            assert!(release().unwrap() > 0);
            assert_eq!(busy(1000), expected);
        }
        assert!(others.into_iter().all(|other| other.join().unwrap() == Some(expected)));
    }
}
