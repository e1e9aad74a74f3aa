//! Chores that need the code itself. `cargo xtask generate` writes every generated file; with `--check` it writes
//! nothing and fails if one of them is out of date. `cargo xtask figures` counts what the project limits. `cargo xtask man` writes
//! the man pages, `cargo xtask book` the documentation as HTML. `cargo xtask lint` checks the words and the rule IDs of comments, messages and pages. `cargo xtask dist` builds a
//! release.

mod book;
mod cli_reference;
mod dist;
mod figures;
mod generated;
mod lint;
mod man;
mod pictures;
mod tree;

use clap::{Parser, Subcommand};

/// Bowline's own chores.
#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// Write the files that are made from the code.
    Generate {
        /// Write nothing; fail if a file is not what would be written.
        #[arg(long)]
        check: bool,
    },
    /// Print the size of each provider, the files that name it, and the number of HTTP clients, with their limits.
    Figures,
    /// Write the man pages.
    Man {
        /// Directory of the pages.
        #[arg(default_value = "target/man")]
        directory: std::path::PathBuf,
    },
    /// Render all pages as a book: HTML with navigation and search; fail if a link is broken.
    Book {
        /// Directory of the book, whose former content is removed.
        #[arg(default_value = "target/book")]
        directory: std::path::PathBuf,
    },
    /// Check words and rule IDs in comments, messages, names and pages.
    Lint,
    /// Build what a release consists of: program, image, chart, manifests, Debian package, SBOM and checksums.
    Dist(dist::Options),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().chore {
        Chore::Generate { check: false } => generated::write(),
        Chore::Generate { check: true } => generated::check(),
        Chore::Figures => figures::print(&generated::root()),
        Chore::Man { directory } => man::write(&generated::root().join(directory)),
        Chore::Book { directory } => book::write(&generated::root(), &generated::root().join(directory)),
        Chore::Lint => lint::check(&generated::root()),
        Chore::Dist(options) => dist::run(&generated::root(), &options),
    }
}
