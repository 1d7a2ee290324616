mod ledger;
fn main(){}
