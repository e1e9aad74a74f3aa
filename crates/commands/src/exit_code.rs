//! Exit codes: one meaning each, the same for all commands. The reference page prints this table.

use std::process::ExitCode;

/// Exit code for an invalid command line or file: nothing was started.
// The code that clap, and most command-line programs, use for it.
pub const BAD_INPUT: u8 = 2;

/// Exit code of `plan`, `explain` and `check` that ran and found something to do.
const FOUND: u8 = 3;

/// Exit codes of the commands, and their meaning.
pub const TABLE: [(u8, &str); 4] = [
    (0, "Success. `plan` and `explain`: nothing to change; `check`: no errors, though possibly warnings."),
    (
        1,
        "A failure at run time: the API server or a cloud does not respond, an address is in use, an object does not exist. `lb-agent \
         status`: not exactly one agent is active.",
    ),
    (BAD_INPUT, "The command line or a file that it names is invalid. Nothing was started or changed."),
    (FOUND, "`plan` and `explain`: there is something to change; `check`: at least one finding is an error."),
];

/// Exit codes of the manager.
// upstream: FLAG-4.
pub const OF_MANAGER: &str = "The manager exits as the Go managers do: with 0 after a clean stop, with 1 for invalid flags and files, a port in \
                              use and a lost lease, and with 255 for any other failure.";

/// Exit code for "there is something to do".
pub(crate) fn found() -> ExitCode {
    ExitCode::from(FOUND)
}
