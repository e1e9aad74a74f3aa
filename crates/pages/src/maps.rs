//! What of the process is code: the lines of `/proc/self/maps` that are mapped from a file and never written, not even while the
//! program was loaded.

use std::io;

/// A range of addresses that holds code, or the constants beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Code {
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Code {
    /// All code of this process that comes from files.
    pub(crate) fn of_this_process() -> io::Result<Vec<Code>> {
        Ok(std::fs::read_to_string("/proc/self/maps")?.lines().filter_map(Code::read).collect())
    }

    /// `55d0c0a00000-55d0c1000000 r-xp 002d4000 fe:01 123   /bin/bowline`
    fn read(line: &str) -> Option<Code> {
        let mut words = line.split_ascii_whitespace();
        let (range, rights, offset, _device, inode) =
            (words.next()?, words.next()?, words.next()?, words.next()?, words.next()?);
        // Other ranges that cannot be written were, when addresses were filled in; what begins a file holds none.
        let is_as_in_the_file = rights == "r-xp" || (rights == "r--p" && offset.bytes().all(|digit| digit == b'0'));
        if !is_as_in_the_file || inode == "0" {
            return None;
        }
        let (start, end) = range.split_once('-')?;
        let address = |text| usize::from_str_radix(text, 16).ok();
        Some(Code { start: address(start)?, end: address(end)? }).filter(|code| code.start < code.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
