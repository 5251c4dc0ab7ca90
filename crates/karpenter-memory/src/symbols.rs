//! The executable files mapped into this process, and function names from their symbol tables.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;

use object::elf::PF_X;
use object::{Object, ObjectSegment, ObjectSymbol, ReadCache, SegmentFlags, SymbolKind};

/// An executable mapping of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) offset: u64,
    pub(crate) file: String,
    /// The build id in hexadecimal; empty if the file has none.
    pub(crate) build_id: String,
    /// Function names of the requested addresses.
    pub(crate) names: BTreeMap<u64, Name>,
}

/// The name of a function.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    /// The name as in the source code.
    pub(crate) plain: String,
    /// The name as in the symbol table.
    pub(crate) mangled: String,
}

impl Mapping {
    pub(crate) fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }
}

/// The executable mappings of this process, with function names for these addresses.
pub(crate) fn mappings(addresses: &[u64]) -> Vec<Mapping> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut mappings = executable(&maps);
    for mapping in &mut mappings {
        let own: Vec<u64> = addresses.iter().copied().filter(|one| mapping.contains(*one)).collect();
        if !own.is_empty() {
            describe(mapping, own);
        }
    }
    mappings
}

/// The executable mappings of files in the text of `/proc/self/maps`.
fn executable(maps: &str) -> Vec<Mapping> {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let flags = words.next()?;
        let offset = words.next()?;
        let file = words.nth(2).filter(|file| file.starts_with('/'))?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        flags.contains('x').then_some(Mapping {
            start: number(start)?,
            end: number(end)?,
            offset: number(offset)?,
            file: file.to_owned(),
            build_id: String::new(),
            names: BTreeMap::new(),
        })
    };
    maps.lines().filter_map(line).collect()
}

/// Reads the build id and the function names. Both stay empty if the file cannot be read.
fn describe(mapping: &mut Mapping, mut addresses: Vec<u64>) {
    // The program's own file is read from `/proc/self/exe`, because the file may have been replaced since the process
    // started.
    let own = std::env::current_exe().is_ok_and(|own| own.as_os_str() == mapping.file.as_str());
    let Ok(file) = File::open(if own { "/proc/self/exe" } else { &mapping.file }) else { return };
    let cache = ReadCache::new(BufReader::new(file));
    let Ok(object) = object::File::parse(&cache) else { return };
    if let Ok(Some(id)) = object.build_id() {
        mapping.build_id = id.iter().map(|byte| format!("{byte:02x}")).collect();
    }
    // The offset between the addresses in the file and in memory. Mappings are page-aligned, segments are not.
    let mapped = mapping.offset..mapping.offset + (mapping.end - mapping.start);
    let code = object.segments().find(|segment| {
        let (offset, size) = segment.file_range();
        let is_code = matches!(segment.flags(), SegmentFlags::Elf { p_flags, .. } if p_flags & PF_X == PF_X);
        is_code && offset < mapped.end && offset + size > mapped.start
    });
    let Some(code) = code else { return };
    let begins_at = mapping.start.wrapping_sub(mapping.offset).wrapping_add(code.file_range().0);
    let bias = begins_at.wrapping_sub(code.address());
    addresses.sort_unstable();
    addresses.dedup();
    for symbol in object.symbols().chain(object.dynamic_symbols()) {
        if symbol.kind() != SymbolKind::Text || symbol.size() == 0 {
            continue;
        }
        let start = symbol.address().wrapping_add(bias);
        let end = start.saturating_add(symbol.size());
        let from = addresses.partition_point(|address| *address < start);
        for address in addresses[from..].iter().take_while(|address| **address < end) {
            if let Ok(mangled) = symbol.name() {
                let plain = || format!("{:#}", rustc_demangle::demangle(mangled));
                let name = || Name { plain: plain(), mangled: mangled.to_owned() };
                mapping.names.entry(*address).or_insert_with(name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_with_code_are_mappings() {
        let maps = "\
55d0-55e0 r--p 00000000 08:01 42                         /usr/bin/karpenter
55e0-5600 r-xp 00010000 08:01 42                         /usr/bin/karpenter
7f00-7f10 rw-p 00000000 00:00 0
7fff-8000 r-xp 00000000 00:00 0                          [vdso]
";
        let expected = Mapping {
            start: 0x55e0,
            end: 0x5600,
            offset: 0x10000,
            file: "/usr/bin/karpenter".to_owned(),
            build_id: String::new(),
            names: BTreeMap::new(),
        };
        assert_eq!(executable(maps), [expected]);
    }

    #[test]
    fn own_functions_have_names_and_the_program_has_an_id() {
        let address = own_functions_have_names_and_the_program_has_an_id as *const () as u64;
        let mappings = mappings(&[address]);
        let own = mappings.iter().find(|mapping| mapping.contains(address)).expect("loaded");
        let name = own.names.get(&address).expect("named");
        assert!(name.plain.contains("own_functions_have_names"), "{name:?}");
        assert!(!own.build_id.is_empty());
    }
}
