# A lake in S3, and zync on an EKS that is there: bucket, role with the least rights, namespace and chart.

locals {
  issuer    = replace(var.oidc_provider_arn, "/^.*:oidc-provider//", "")
  role_name = coalesce(var.role_name, "${var.namespace}-${var.release}")
}

# S3 deletes no bucket that has objects, unless `force_destroy` is set.
resource "aws_s3_bucket" "lake" {
  bucket        = var.bucket
  force_destroy = var.force_destroy
  tags          = var.tags
}

resource "aws_s3_bucket_public_access_block" "lake" {
  bucket                  = aws_s3_bucket.lake.bucket
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

resource "aws_s3_bucket_server_side_encryption_configuration" "lake" {
  bucket = aws_s3_bucket.lake.bucket

  rule {
    bucket_key_enabled = var.kms_key_arn != null

    apply_server_side_encryption_by_default {
      sse_algorithm     = var.kms_key_arn == null ? "AES256" : "aws:kms"
      kms_master_key_id = var.kms_key_arn
    }
  }
}

resource "aws_s3_bucket_versioning" "lake" {
  count  = var.versioning ? 1 : 0
  bucket = aws_s3_bucket.lake.bucket

  versioning_configuration {
    status = "Enabled"
  }
}

# Parts of uploads that were killed are in no listing, and cost.
resource "aws_s3_bucket_lifecycle_configuration" "lake" {
  bucket     = aws_s3_bucket.lake.bucket
  depends_on = [aws_s3_bucket_versioning.lake]

  rule {
    id     = "uploads-that-were-not-completed"
    status = "Enabled"

    filter {}

    abort_incomplete_multipart_upload {
      days_after_initiation = 7
    }
  }

  # Also without versioning: where it was switched off again, older versions are still there.
  rule {
    id     = "versions-that-are-not-current"
    status = "Enabled"

    filter {}

    noncurrent_version_expiration {
      noncurrent_days = var.noncurrent_days
    }

    expiration {
      expired_object_delete_marker = true
    }
  }
}

resource "aws_s3_bucket_policy" "lake" {
  bucket     = aws_s3_bucket.lake.bucket
  depends_on = [aws_s3_bucket_public_access_block.lake]

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid       = "OnlyByTls"
      Effect    = "Deny"
      Principal = "*"
      Action    = "s3:*"
      Resource  = [aws_s3_bucket.lake.arn, "${aws_s3_bucket.lake.arn}/*"]
      Condition = { Bool = { "aws:SecureTransport" = "false" } }
    }]
  })
}

resource "aws_iam_role" "zync" {
  name                 = local.role_name
  permissions_boundary = var.permissions_boundary
  tags                 = var.tags

  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Principal = { Federated = var.oidc_provider_arn }
      Action    = "sts:AssumeRoleWithWebIdentity"
      Condition = {
        StringEquals = {
          "${local.issuer}:aud" = "sts.amazonaws.com"
          "${local.issuer}:sub" = "system:serviceaccount:${var.namespace}:${var.release}"
        }
      }
    }]
  })
}

# The rights of docs/how-to/s3.md, which a test holds against a server that refuses all others.
resource "aws_iam_role_policy" "lake" {
  name = "lake"
  role = aws_iam_role.zync.name

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = concat([
      {
        Effect   = "Allow"
        Action   = ["s3:ListBucket"]
        Resource = [aws_s3_bucket.lake.arn]
      },
      {
        Effect   = "Allow"
        Action   = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"]
        Resource = ["${aws_s3_bucket.lake.arn}/${var.path}/*"]
      },
      ], [for key in var.kms_key_arn[*] : {
        Effect   = "Allow"
        Action   = ["kms:Decrypt", "kms:GenerateDataKey"]
        Resource = [key]
    }])
  })
}

module "release" {
  source = "../release"

  release          = var.release
  namespace        = var.namespace
  create_namespace = var.create_namespace
  chart            = var.chart
  chart_version    = var.chart_version
  values           = var.values
  timeout          = var.timeout

  service_account_annotations = { "eks.amazonaws.com/role-arn" = aws_iam_role.zync.arn }
  environment = {
    AWS_REGION = aws_s3_bucket.lake.region
    ZYNC_LAKE  = "s3://${aws_s3_bucket.lake.bucket}/${var.path}"
  }

  # The pods start with all that they need, and are gone before the role is.
  depends_on = [aws_iam_role_policy.lake, aws_s3_bucket_public_access_block.lake, aws_s3_bucket_policy.lake]
}
