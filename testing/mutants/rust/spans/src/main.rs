//! Prints where things begin and end in Rust sources, for the weaving of mutants: `spans FILE…`.
//!
//! One line each, with byte offsets: `file`, then `binary OPERATOR START END`, `unary OPERATOR START END`,
//! `field FIELD START END` (of the whole literal), `arm START PATTERN_END ARROW GUARD_START GUARD_END` (zeros where an arm has no guard) or
//! `body START END LEFT_OUT` (of functions that the compiler may run).
//! Conditions with `let` in them are left out: they cannot be put into a branch of their own.

use std::ops::Range;

use proc_macro2::Span;
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};

struct Printer;

impl Printer {
    fn body(&self, signature: &syn::Signature, block: &syn::Block) {
        let Range { start, end } = range(block.span());
        println!("body {start} {end} {}", u8::from(signature.constness.is_some()));
    }
}

impl<'ast> Visit<'ast> for Printer {
    fn visit_expr_binary(&mut self, node: &'ast syn::ExprBinary) {
        if !has_let(&node.left) && !has_let(&node.right) {
            let Range { start, end } = range(node.span());
            println!("binary {} {start} {end}", range(node.op.span()).start);
        }
        visit::visit_expr_binary(self, node);
    }

    fn visit_expr_unary(&mut self, node: &'ast syn::ExprUnary) {
        let Range { start, end } = range(node.span());
        println!("unary {start} {start} {end}");
        visit::visit_expr_unary(self, node);
    }

    fn visit_expr_struct(&mut self, node: &'ast syn::ExprStruct) {
        let Range { start, end } = range(node.span());
        for field in &node.fields {
            println!("field {} {start} {end}", range(field.span()).start);
        }
        visit::visit_expr_struct(self, node);
    }

    fn visit_arm(&mut self, node: &'ast syn::Arm) {
        let guard = node.guard.as_ref().map(|(_, guard)| guard);
        if !guard.is_some_and(|guard| has_let(guard)) {
            let guard = guard.map_or(0..0, |guard| range(guard.span()));
            println!(
                "arm {} {} {} {} {}",
                range(node.span()).start,
                range(node.pat.span()).end,
                range(node.fat_arrow_token.span()).start,
                guard.start,
                guard.end
            );
        }
        visit::visit_arm(self, node);
    }

    fn visit_item_fn(&mut self, node: &'ast syn::ItemFn) {
        self.body(&node.sig, &node.block);
        visit::visit_item_fn(self, node);
    }

    fn visit_impl_item_fn(&mut self, node: &'ast syn::ImplItemFn) {
        self.body(&node.sig, &node.block);
        visit::visit_impl_item_fn(self, node);
    }

    fn visit_trait_item_fn(&mut self, node: &'ast syn::TraitItemFn) {
        if let Some(block) = &node.default {
            self.body(&node.sig, block);
        }
        visit::visit_trait_item_fn(self, node);
    }
}

fn range(span: Span) -> Range<usize> {
    span.byte_range()
}

/// Whether an expression is a condition with `let`, or a chain of such.
fn has_let(node: &syn::Expr) -> bool {
    match node {
        syn::Expr::Let(_) => true,
        syn::Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

fn main() {
    for path in std::env::args().skip(1) {
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let file = syn::parse_file(&text).unwrap_or_else(|error| panic!("{path}: {error}"));
        println!("file {path}");
        Printer.visit_file(&file);
    }
}
