SELECT seqno, record_seqno AS _order, value:item::string AS item, value:left::int AS left,
  value:left::int = 0 AS _delete
FROM records
