//! A pseudo-terminal, and everything that a program writes to it.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::pty::{Winsize, openpty};

use super::within;

/// Mark behind the output of a program.
const END: &str = "<end of the output>";

const TIMEOUT: Duration = Duration::from_secs(20);

/// A terminal of 24 rows.
pub(crate) struct Pty {
    keyboard: File,
    /// The program's side, which keeps the terminal open.
    pub(crate) slave: OwnedFd,
    output: Arc<Mutex<Vec<u8>>>,
}

impl Pty {
    pub(crate) fn open(columns: u16) -> Pty {
        let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(&size, None).unwrap();
        let keyboard = File::from(pty.master);
        let output = Arc::new(Mutex::new(Vec::new()));
        let (mut screen, read) = (keyboard.try_clone().unwrap(), Arc::clone(&output));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = screen.read(&mut bytes) {
                read.lock().unwrap().extend_from_slice(&bytes[..count]);
            }
        });
        Pty { keyboard, slave: pty.slave, output }
    }

    /// Returns the terminal as standard input, output or error of a program.
    pub(crate) fn side(&self) -> Stdio {
        Stdio::from(self.slave.try_clone().unwrap())
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Everything that was written to the terminal so far.
    pub(crate) fn output(&self) -> String {
        String::from_utf8_lossy(&self.output.lock().unwrap()).into_owned()
    }

    /// Returns everything that a program wrote that has ended. It need not be the last one with this terminal: other tests may
    /// have started programs meanwhile, which inherit it.
    pub(crate) fn complete_output(&self) -> String {
        File::from(self.slave.try_clone().unwrap()).write_all(END.as_bytes()).unwrap();
        let complete = within(TIMEOUT, || Some(self.output().split_once(END)?.0.to_owned()));
        complete.expect("the terminal delivers what was written")
    }
}
