-- What each order comes to, by the menu it was made from.
SELECT
  seqno,
  o.value:customerID::int AS customerID,
  m.value:menuID::int AS menuID,
  o.value:qty::int AS qty,
  CAST(o.value:qty::int * m.value:price::decimal(10, 2) AS decimal(10, 2)) AS total
FROM `order` o JOIN menu m USING (seqno)
