//! What of the process is code: the lines of `/proc/self/maps` that are mapped from a file and never written, not even while the
//! program was loaded.

use std::io;

/// Length of a piece of code, in bytes: a multiple of every page size that is in use but 64 KiB, with which there is nothing to gain.
pub(crate) const PIECE: usize = 16 * 1024;

/// A range of addresses that holds code, or the constants beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Code {
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Code {
    /// All code of this process that comes from files, with neighbours joined.
    pub(crate) fn of_this_process() -> io::Result<Vec<Code>> {
        Ok(joined(Code::mappings()?))
    }

    /// The same as the kernel has it.
    pub(crate) fn mappings() -> io::Result<Vec<Code>> {
        Ok(std::fs::read_to_string("/proc/self/maps")?.lines().filter_map(Code::read).collect())
    }

    /// The whole pieces of the range.
    pub(crate) fn pieces(self) -> impl Iterator<Item = Code> {
        let starts = (self.start..self.end.saturating_sub(PIECE - 1)).step_by(PIECE);
        starts.map(|start| Code { start, end: start + PIECE })
    }

    /// `55d0c0a00000-55d0c1000000 r-xp 002d4000 fe:01 123   /bin/bowline`
    fn read(line: &str) -> Option<Code> {
        let mut words = line.split_ascii_whitespace();
        let (range, permissions, offset, _device, inode) =
            (words.next()?, words.next()?, words.next()?, words.next()?, words.next()?);
        // Other ranges that cannot be written were, when addresses were filled in; what begins a file holds none.
        let is_as_in_the_file =
            permissions == "r-xp" || (permissions == "r--p" && offset.bytes().all(|digit| digit == b'0'));
        if !is_as_in_the_file || inode == "0" {
            return None;
        }
        let (start, end) = range.split_once('-')?;
        let address = |text| usize::from_str_radix(text, 16).ok();
        Some(Code { start: address(start)?, end: address(end)? }).filter(|code| code.start < code.end)
    }
}

/// Joins ranges that follow each other: one call serves all of them.
fn joined(ranges: Vec<Code>) -> Vec<Code> {
    let mut joined: Vec<Code> = Vec::new();
    for range in ranges {
        match joined.last_mut().filter(|last| last.end == range.start) {
            Some(last) => last.end = range.end,
            None => joined.push(range),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_joined() {
        let ranges =
            |ranges: &[(usize, usize)]| ranges.iter().map(|&(start, end)| Code { start, end }).collect::<Vec<_>>();
        assert_eq!(joined(ranges(&[(1, 2), (2, 3), (4, 5), (5, 6)])), ranges(&[(1, 3), (4, 6)]));
        assert_eq!(joined(Vec::new()), []);
    }

    #[test]
    fn a_range_has_whole_pieces_only() {
        let pieces =
            |start, end| Code { start, end }.pieces().map(|piece| (piece.start, piece.end)).collect::<Vec<_>>();
        assert_eq!(pieces(0x1000, 0x1000 + PIECE - 1), []);
        assert_eq!(
            pieces(0x1000, 0x2000 + 2 * PIECE),
            [(0x1000, 0x1000 + PIECE), (0x1000 + PIECE, 0x1000 + 2 * PIECE)]
        );
    }

    #[test]
    fn only_what_is_code_of_a_file_and_nothing_that_can_be_written_counts() {
        let cases = [
            ("1000-3000 r-xp 00000000 fe:01 12   /bin/bowline", Some(Code { start: 0x1000, end: 0x3000 })),
            ("1000-3000 r-xp 00000000 fe:01 12   /lib/with blank.so", Some(Code { start: 0x1000, end: 0x3000 })),
            ("1000-3000 r--p 00000000 fe:01 12   /bin/bowline", Some(Code { start: 0x1000, end: 0x3000 })),
            ("1000-3000 r--p 00e20000 fe:01 12   /bin/bowline", None),
            ("1000-3000 rw-p 00000000 fe:01 12   /bin/bowline", None),
            ("1000-3000 rwxp 00000000 fe:01 12   /bin/bowline", None),
            ("1000-3000 r-xs 00000000 fe:01 12   /bin/bowline", None),
            ("1000-3000 r-xp 00000000 00:00 0    [vdso]", None),
            ("3000-1000 r-xp 00000000 fe:01 12   /bin/bowline", None),
            ("no line at all", None),
            ("", None),
        ];
        for (line, expected) in cases {
            assert_eq!(Code::read(line), expected, "{line}");
        }
    }
}
