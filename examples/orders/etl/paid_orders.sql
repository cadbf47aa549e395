-- One row for each order: who ordered, and what was paid in all. Joins by seqno stay inside the transaction.
SELECT
  seqno,
  o.value:order_id::bigint AS order_id,
  c.name AS customer,
  o.value:item::string AS item,
  CAST(sum(p.value:amount::decimal(10, 2)) AS decimal(10, 2)) AS paid
FROM orders o
JOIN payments p USING (seqno)
LEFT JOIN customers c ON c.id = o.value:customer::string
GROUP BY ALL
